"""What the unchanged windows of one column are drawn from: its reference, in a few dozen cells."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.distances import NEVER, RARE, FloatArray, Method, comparable
from training.types import ColumnKind

CELLS = 64

JEFFREYS = 0.5
"""What a cell's count is raised by: Jeffreys' prior for shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What one column is drawn from.

    Attributes:
        values: What the rows of each cell hold (cells,).
        counts: Rows of the reference in each cell (cells,).
        weights: Parameters of the posterior of the cells' shares, with that of missing last (cells + 1,).
    """

    values: npt.NDArray[np.generic]
    counts: FloatArray
    weights: FloatArray

    @property
    def shares(self) -> FloatArray:
        """The reference's share of each cell among the rows with a value (cells,)."""
        shares: FloatArray = self.counts / self.counts.sum()
        return shares

    def windows(self, rows: int, draws: int, generator: np.random.Generator) -> FloatArray:
        """Return the shares (draws, cells) of windows from sources that the reference may stem from."""
        gammas = generator.standard_gamma(self.weights, (draws, len(self.weights)))
        drawn = generator.multinomial(rows, gammas / gammas.sum(axis=1, keepdims=True))
        return _shares(drawn[:, :-1])


def _shares(counts: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> FloatArray:
    shares: FloatArray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def cells_of(sample: pd.Series, kind: ColumnKind, method: Method) -> Cells:
    """Divide a column of the reference into cells.

    Numbers fall into at most `CELLS` cells of equal count: the gap of two distribution functions is needed at
    no more places. Categories get one more cell for those never seen, as likely as there are rows whose
    category was seen once (Good, Biometrika 40, 1953); columns that hardly ever vary get cells for below
    and above.

    Args:
        sample: The column, numbers as float64 with NaN or categories with None (rows,).
        kind: Which of the two.
        method: How the column will be compared.
    """
    seen_once = float((sample.value_counts() == 1).sum()) if kind == "categorical" else 0.0
    sample, _ = comparable(sample, sample.iloc[:0], kind, method)
    missing = int(sample.isna().sum())
    if kind == "numeric":
        sample = pd.Series(_in_groups(np.sort(sample.dropna().to_numpy())))
    present = sample.value_counts().sort_index()
    if kind == "numeric" and (sample.abs() <= RARE).sum() == present.sum() > 0:
        present = present.reindex([-RARE, 0.0, RARE], fill_value=0)
    elif kind == "categorical" and len(present):
        present = present.reindex([*present.index, NEVER], fill_value=0)
    counts: FloatArray = present.to_numpy().astype(np.float64)
    weights = counts + JEFFREYS
    if kind == "categorical" and len(present):
        weights[-1] = max(JEFFREYS, seen_once)
        weights[:-1] *= max(0.0, 1 - seen_once / counts.sum())
    return Cells(values=present.index.to_numpy(), counts=counts, weights=np.append(weights, missing))


def _in_groups(ordered: FloatArray) -> FloatArray:
    """Replace values in ascending order by the means of `CELLS` groups of equal count, if they are more."""
    if np.count_nonzero(np.diff(ordered)) < CELLS:
        return ordered
    starts = np.arange(CELLS) * len(ordered) // CELLS
    sizes = np.diff(np.append(starts, len(ordered)))
    grouped: FloatArray = np.repeat(np.add.reduceat(ordered, starts) / sizes, sizes)
    return grouped
