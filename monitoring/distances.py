"""How far a window lies from the reference: Evidently's distances, for many windows at once.

A test holds them to Evidently's own numbers; calibration needs thousands of them, which Evidently's reports
would take minutes for. All are distances: larger is always further.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import rel_entr

from training.types import ColumnKind

FloatArray = npt.NDArray[np.float64]
Distance = Callable[[npt.NDArray[np.generic], FloatArray, FloatArray], FloatArray]
"""Values (cells,), the reference's shares (cells,), the windows' (windows, cells) -> distances (windows,)."""

ROW_CAP = 50_000
"""Rows of either side that are compared; calibration assumes the same cap."""

LEAST_DEVIATION = 0.001
"""Evidently norms a Wasserstein distance by no smaller deviation."""

RARE = 0.01
"""What a value other than the usual one counts in a column that hardly ever varies: with Evidently's least
deviation, the share of such values must then move by 0.01 to make a distance of 0.1."""

FREQUENT = 30
"""Rows of the reference from which on a category is compared by itself; at 10, the luck of which categories
reach it made false alarms."""

SELDOM, NEVER = "\0seldom seen", "\0never seen"

EMPTY_SHARE = 0.0001
"""What Evidently's stability index puts in the place of an empty share, or less where a share is less."""


def capped_sample(frame: pd.DataFrame, *, seed: int, cap: int = ROW_CAP) -> pd.DataFrame:
    """Return at most `cap` rows in their order, one drawn from each of `cap` equal stretches of the frame."""
    return frame if len(frame) <= cap else frame.iloc[sampled_positions(len(frame), seed=seed, cap=cap)]


def sampled_positions(rows: int, *, seed: int, cap: int = ROW_CAP) -> npt.NDArray[np.int64]:
    """Return positions of at most `cap` of `rows` rows, in order: one of each of `cap` equal stretches."""
    if rows <= cap:
        return np.arange(rows)
    edges = np.arange(cap + 1) * rows // cap
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def wasserstein(values: npt.NDArray[np.generic], reference: FloatArray, windows: FloatArray) -> FloatArray:
    """First Wasserstein distance over the reference's standard deviation, as Evidently's "wasserstein"."""
    numbers = values.astype(np.float64)
    mean = reference @ numbers
    deviation = math.sqrt(max(float(reference @ (numbers - mean) ** 2), 0.0))
    gap = np.abs(np.cumsum(windows - reference, axis=1))
    distance: FloatArray = gap @ np.append(np.diff(numbers), 0.0) / max(deviation, LEAST_DEVIATION)
    return distance


def jensen_shannon(_: npt.NDArray[np.generic], reference: FloatArray, windows: FloatArray) -> FloatArray:
    """Jensen-Shannon distance with natural logarithms, 0 to 0.83, as Evidently's "jensenshannon"."""
    middle = (reference + windows) / 2
    divergence = rel_entr(reference, middle).sum(axis=1) + rel_entr(windows, middle).sum(axis=1)
    distance: FloatArray = np.sqrt(np.maximum(divergence, 0) / 2)
    return distance


def kolmogorov_smirnov(_: npt.NDArray[np.generic], reference: FloatArray, windows: FloatArray) -> FloatArray:
    """Largest gap of the two distribution functions, 0 to 1."""
    distance: FloatArray = np.abs(np.cumsum(windows - reference, axis=1)).max(axis=1)
    return distance


def population_stability(
    _: npt.NDArray[np.generic], reference: FloatArray, windows: FloatArray
) -> FloatArray:
    """Population stability index, as Evidently's "psi" on categories."""
    used = (reference > 0) | (windows > 0)
    before, after = _filled(np.broadcast_to(reference, windows.shape)), _filled(windows)
    distance: FloatArray = np.where(used, (before - after) * np.log(before / after), 0.0).sum(axis=1)
    return distance


def _filled(shares: FloatArray) -> FloatArray:
    least = np.where(shares > 0, shares, np.inf).min(axis=1, keepdims=True)
    filled: FloatArray = np.where(
        shares > 0, shares, np.where(least <= EMPTY_SHARE, least / 10**6, EMPTY_SHARE)
    )
    return filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A distance that Evidently computes for columns of `kinds`.

    Attributes:
        evidently: Evidently's name for it, or that of a test of ours that is registered with Evidently.
        distance: The same for many windows at once.
        bins: Numeric columns are cut into this many bins of equal share in the reference; None compares
            their values.
    """

    evidently: str
    kinds: tuple[ColumnKind, ...]
    distance: Distance
    bins: int | None = None


METHODS: dict[str, Method] = {
    "wasserstein": Method(evidently="wasserstein", kinds=("numeric",), distance=wasserstein),
    "jensenshannon": Method(evidently="jensenshannon", kinds=("categorical",), distance=jensen_shannon),
    "ks": Method(evidently="floodmark_ks", kinds=("numeric",), distance=kolmogorov_smirnov, bins=64),
    "psi": Method(evidently="psi", kinds=("numeric", "categorical"), distance=population_stability, bins=10),
}
"""By the names that the settings use. Evidently's own "ks" is a p-value, which changes its direction; its own
"psi" spans its bins over both sides, so that one outlier hides a shift: both get bins of the reference."""


def comparable(
    reference: pd.Series, current: pd.Series, kind: ColumnKind, method: Method
) -> tuple[pd.Series, pd.Series]:
    """Bring both sides of one column into the form in which they are compared; NaN and None stay.

    Numbers are cut at one span beyond the span of the reference's middle 99 %, or a single reading of a
    million would be the deviation that everything is normed by, and hide any drift, or be a drift of its
    own; then they are standardised by the reference, since Evidently cannot see a column of small values
    move. In a column whose middle 99 % is one value, what counts is how often it lies above or below,
    since a few readings do not tell how far it goes. Categories that the reference holds less than
    `FREQUENT` times are one category, and those that it does not hold another: single ones say nothing.
    """
    if reference.isna().all():
        return reference, current
    if kind == "categorical":
        counts = reference.value_counts()
        known = {value: value if count >= FREQUENT else SELDOM for value, count in counts.items()}
        return reference.map(known), current.map(lambda value: known.get(value, NEVER), na_action="ignore")
    before, after = _comparable_numbers(reference.to_numpy(), current.to_numpy(), method)
    return pd.Series(before, index=reference.index), pd.Series(after, index=current.index)


def _comparable_numbers(
    reference: FloatArray, current: FloatArray, method: Method
) -> tuple[FloatArray, FloatArray]:
    known = np.sort(reference[~np.isnan(reference)])
    low, high = np.quantile(known, [0.005, 0.995])
    if low == high:
        return RARE * np.sign(reference - low), RARE * np.sign(current - low)
    if method.bins is not None:
        edges = np.unique(np.quantile(known, np.arange(1, method.bins) / method.bins))
        return _binned(reference, edges), _binned(current, edges)
    size = max(abs(known[0]), abs(known[-1]))  # dividing by it first keeps squares of huge values finite
    span = high / size - low / size
    known, before, after = (
        np.clip(values / size, low / size - span, high / size + span)
        for values in (known, reference, current)
    )
    centre, deviation = known.mean(), known.std()
    return (before - centre) / deviation, (after - centre) / deviation


def _binned(values: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the number of each value's bin, NaN where there is no value."""
    places = np.searchsorted(edges, values, side="left").astype(np.float64)
    binned: FloatArray = np.where(np.isnan(values), np.nan, places)
    return binned
