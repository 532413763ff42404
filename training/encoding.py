"""From columns of numbers and texts to the matrix that a network reads; the one place that does this maths.

Training, scoring of files and serving all come here, with columns from pandas, Arrow or JSON. The work is
done for all numeric columns at once: a single row costs a dozen NumPy calls, however many columns it has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]
Levels = tuple[npt.NDArray[np.intp], Sequence[str | None]]
"""A code per row, and the level of each code: text, or None for what is missing."""

CLIP = 10.0
"""In standard deviations: what lies further out is abnormal already and must not drown the other columns."""
FLOAT32_MAX = float(np.finfo(np.float32).max)
ROWS_PER_BLOCK = 4_096
"""Encoded at a time: what lies between values and features stays in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericColumn:
    """`tail` is the robust scale of a heavy-tailed column and None for the others."""

    name: str
    median: float
    tail: float | None
    mean: float
    deviation: float
    missing_share: float

    @property
    def width(self) -> int:
        """Two with a missing-indicator, which exists only where training saw missing values."""
        return 2 if self.missing_share > 0 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalColumn:
    """The levels of training, most frequent first (None is "missing"), and the share of rows of each."""

    name: str
    levels: tuple[str | None, ...]
    shares: tuple[float, ...]

    @property
    def width(self) -> int:
        """One feature a level and one for everything else."""
        return len(self.levels) + 1


def compress(values: Array, median: float | Array, tail: float | Array) -> Array:
    """Compress heavy tails around the median, by asinh."""
    compressed: Array = np.arcsinh((values - median) / tail)
    return compressed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoder:
    """The columns' parameters as arrays, in the order of the features.

    A column's features lie side by side, numeric columns first. A missing number counts as the median where
    training has seen missing ones, and otherwise as far out as a value can be: a row must not look normal
    for want of its values.

    Attributes:
        names: Of the numeric columns; the arrays below have one entry for each (columns,).
        heavy: Places of those with tails.
        places: Where each column's value goes among the features.
        indicated: Places of those with a missing-indicator, which follows the value.
        slots: Name, first feature, and the slot of each level, for each categorical column.
        shares: Of every level in training, over the features of all categorical columns.
    """

    names: tuple[str, ...]
    median: Array
    mean: Array
    deviation: Array
    missing_share: Array
    heavy: npt.NDArray[np.intp]
    tail: Array
    places: npt.NDArray[np.intp]
    indicated: npt.NDArray[np.intp]
    slots: tuple[tuple[str, int, Mapping[str | None, int]], ...]
    shares: Array
    width: int

    @classmethod
    def of(cls, numeric: Sequence[NumericColumn], categorical: Sequence[CategoricalColumn]) -> "Encoder":
        """Lay the features of these columns out side by side."""
        tails = [column.tail for column in numeric]
        widths = [*(column.width for column in numeric), *(column.width for column in categorical)]
        starts = np.concatenate(([0], np.cumsum(widths, dtype=np.intp)))
        slots, shares = [], [np.empty(0)]
        for column, start in zip(categorical, starts[len(numeric) :].tolist(), strict=False):
            slots.append((column.name, start, {level: slot for slot, level in enumerate(column.levels)}))
            shares.append(np.array((*column.shares, 1.0 - sum(column.shares))))
        return cls(
            names=tuple(column.name for column in numeric),
            median=np.array([column.median for column in numeric]),
            mean=np.array([column.mean for column in numeric]),
            deviation=np.array([column.deviation for column in numeric]),
            missing_share=np.array([column.missing_share for column in numeric]),
            heavy=np.flatnonzero([tail is not None for tail in tails]),
            tail=np.array([tail for tail in tails if tail is not None]),
            places=starts[: len(numeric)],
            indicated=np.flatnonzero([column.width > 1 for column in numeric]),
            slots=tuple(slots),
            shares=np.concatenate(shares),
            width=int(starts[-1]),
        )

    def encode(
        self, rows: int, numbers: Callable[[str], npt.NDArray[Any]], levels: Callable[[str], Levels]
    ) -> Features:
        """Return the features (rows, width) of columns that are asked for by name, one after the other.

        `numbers` returns values (rows,), not finite where they are missing; `levels` codes (rows,).
        """
        features = np.empty((rows, self.width), dtype=np.float32)
        columns = [numbers(name) for name in self.names]
        positions = [self._positions(levels(name), known) for name, _, known in self.slots]
        values = np.empty((min(rows, ROWS_PER_BLOCK), len(columns)))
        for start in range(0, rows, ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            part = features[block]
            for place, column in enumerate(columns):
                values[: len(part), place] = column[block]
            self._encode_numbers(values[: len(part)], part)
            self._encode_levels([position[block] for position in positions], part)
        return features

    def _encode_numbers(self, values: Array, features: Features) -> None:
        missing = ~np.isfinite(values)
        some_missing = bool(missing.any())
        present = np.clip(values, -FLOAT32_MAX, FLOAT32_MAX)
        if some_missing:
            present = np.where(missing, self.median, present)
        if self.heavy.size:
            present[:, self.heavy] = compress(present[:, self.heavy], self.median[self.heavy], self.tail)
        present -= self.mean
        present /= self.deviation
        np.clip(present, -CLIP, CLIP, out=present)
        if some_missing:
            present[missing & ~(self.missing_share > 0)] = CLIP
        features[:, self.places] = present
        if self.indicated.size:
            shares = self.missing_share[self.indicated]
            features[:, self.places[self.indicated] + 1] = missing[:, self.indicated] - shares

    def _encode_levels(self, positions: Sequence[npt.NDArray[np.intp]], features: Features) -> None:
        if not self.slots:
            return
        first = self.slots[0][1]
        features[:, first:] = 0.0 - self.shares
        rows = np.arange(len(features))
        for (_, start, _), position in zip(self.slots, positions, strict=True):
            features[rows, start + position] = (1.0 - self.shares)[start - first + position]

    @staticmethod
    def _positions(levels: Levels, known: Mapping[str | None, int]) -> npt.NDArray[np.intp]:
        """Return the slot of each row's level (rows,); what training has not seen shares the last one."""
        codes, values = levels
        slots = np.array([known.get(value, len(known)) for value in values], dtype=np.intp)
        positions: npt.NDArray[np.intp] = slots[codes]
        return positions
