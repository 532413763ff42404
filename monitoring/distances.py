"""How far a window lies from the reference: Evidently's two distances, for many pairs of samples at once.

A test holds them to Evidently's own numbers; calibration needs hundreds of them, which Evidently's reports
would take minutes for.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import rel_entr

from training.types import ColumnKind

FloatArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int64]

METHODS: dict[ColumnKind, str] = {"numeric": "wasserstein", "categorical": "jensenshannon"}
"""Evidently's names of the pinned methods: distances, so that larger is always further."""

ROW_CAP = 10_000
"""Rows of either side that are compared; calibration assumes the same cap."""


def capped_sample(frame: pd.DataFrame, *, seed: int, cap: int = ROW_CAP) -> pd.DataFrame:
    """Return at most `cap` rows in their order, one drawn from each of `cap` equal stretches of the frame."""
    return frame if len(frame) <= cap else frame.iloc[sampled_positions(len(frame), seed=seed, cap=cap)]


def sampled_positions(rows: int, *, seed: int, cap: int = ROW_CAP) -> CountArray:
    """Return positions of at most `cap` of `rows` rows, in order: one of each of `cap` equal stretches."""
    if rows <= cap:
        return np.arange(rows)
    edges = np.arange(cap + 1) * rows // cap
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def distinct_values(column: pd.Series) -> tuple[npt.NDArray[np.generic], CountArray]:
    """Return the distinct present values in order, and each row's position among them, -1 if missing."""
    codes, values = pd.factorize(column, sort=True)
    return np.asarray(values), codes.astype(np.int64)


def without_far_tails(values: pd.Series, reference: pd.Series) -> pd.Series:
    """Cut numbers at one span beyond the span of the reference's middle 99 %.

    A single reading of a million would otherwise be the deviation that everything is normed by, and hide
    any drift, or be a drift of its own. A column that hardly ever varies is left as it is.
    """
    low, high = (float(bound) for bound in reference.quantile([0.005, 0.995]))
    span = high - low
    return values.clip(low - span, high + span) if span > 0 else values


def wasserstein(
    values: npt.NDArray[np.generic], reference_counts: CountArray, current_counts: CountArray
) -> FloatArray:
    """First Wasserstein distance over the standard deviation of the reference, as Evidently's "wasserstein".

    Evidently floors that deviation at 0.001; `evidently_drift` standardises columns first, so here is
    no floor. A constant reference is scored by `constant_score`.

    Args:
        values: The distinct values, ascending (values,).
        reference_counts: How often each pair's reference holds each value (pairs, values).
        current_counts: Likewise for the current windows.

    Returns:
        One distance per pair (pairs,); NaN where a side has no value.
    """
    if not len(values):
        return np.full(len(reference_counts), np.nan)
    # Scaled against overflow, and centred on the references' median so that the squares do not cancel.
    scaled = values.astype(np.float64) / max(float(np.abs(values).max()), np.finfo(float).tiny)
    ranks = np.cumsum(reference_counts.sum(axis=0))
    scaled -= scaled[np.searchsorted(ranks, ranks[-1] / 2)]
    rows = reference_counts.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        reference = reference_counts / rows[:, None]
        gap = current_counts / current_counts.sum(axis=1, keepdims=True)
        mean, square = (reference @ np.column_stack([scaled, scaled**2])).T
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        unchanging = np.count_nonzero(reference_counts, axis=1) == 1
        differing = 1 - (gap[unchanging] * (reference[unchanging] > 0)).sum(axis=1)
        gap -= reference
        np.abs(np.cumsum(gap, axis=1, out=gap), out=gap)
        distance: FloatArray = gap @ np.append(np.diff(scaled), 0.0) / deviation
    distance[unchanging] = constant_score(differing, reference_rows=rows[unchanging])
    return distance


def jensen_shannon(
    values: npt.NDArray[np.generic], reference_counts: CountArray, current_counts: CountArray
) -> FloatArray:
    """Jensen-Shannon distance with natural logarithms, as Evidently's "jensenshannon" on categories.

    Arguments and result as in `wasserstein`; the order of `values` is of no account.
    """
    if not len(values):
        return np.full(len(reference_counts), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        reference = reference_counts / reference_counts.sum(axis=1, keepdims=True)
        current = current_counts / current_counts.sum(axis=1, keepdims=True)
        middle = (reference + current) / 2
        divergence = rel_entr(reference, middle).sum(axis=1) + rel_entr(current, middle).sum(axis=1)
        distance: FloatArray = np.sqrt(np.maximum(divergence, 0) / 2)
    return distance


DISTANCES: dict[ColumnKind, Callable[..., FloatArray]] = {
    "numeric": wasserstein,
    "categorical": jensen_shannon,
}
"""What `METHODS` names, for many pairs at once."""


def constant_score(
    differing_share: FloatArray | float, *, reference_rows: npt.NDArray[np.int64] | int
) -> FloatArray:
    """Score a window against a reference that is constant, where no deviation can norm the distance.

    What counts is the share of the window's values that differ. `reference_rows` rows without any such
    value leave room for a rate of 3 / rows (rule of three, 95 %), so the share is normed by the deviation
    of that rate's indicator. A constant that changed scores sqrt(rows / 3), 41 for 5,000 rows; a
    single new value among 2,000 scores 0.02.
    """
    rate = unseen_rate(reference_rows)
    score: FloatArray = np.asarray(differing_share, dtype=np.float64) / np.sqrt(rate)
    return score


def unseen_rate(rows: npt.NDArray[np.int64] | int) -> FloatArray:
    """Bound the rate of a value that `rows` rows did not show (rule of three, 95 %)."""
    return np.minimum(1.0, 3.0 / np.asarray(rows, dtype=np.float64))
