"""A window beside its reference, reduced to the few numbers that pictures are drawn from."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from monitoring.distances import ROW_CAP, FloatArray, capped_sample
from monitoring.frames import clean_frame
from monitoring.verdicts import ColumnDrift, DriftVerdict
from training.types import FeatureSchema

SHOWN_COLUMNS, SHOWN_CATEGORIES, SHOWN_MISSING = 6, 8, 12
BINS, SCORE_BINS = 24, 40

TRIMMED = 0.005
"""Share of the values at either end that does not stretch an axis, and one value at least."""

LONG_TAIL = 25
"""Interquartile ranges on an axis from which on it is drawn logarithmically away from its middle."""

SPREAD_OUT = 8
"""Parts of an interquartile range of which one around the middle stays linear on such an axis."""

STANDARD_ERRORS, LEAST_RISE = 3.0, 0.005
"""A missing rate moved when it did so by three standard errors and by half a percent of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`; with a `width`, linear that far around `middle`, logarithmic beyond."""

    low: float
    high: float
    middle: float = 0.0
    width: float | None = None

    def place(self, values: FloatArray | float) -> FloatArray:
        """Return where values stand, 0 to 1; those beyond an end stand at it."""
        first, last = self._warped(np.array([self.low, self.high]))
        places: FloatArray = (self._warped(np.asarray(values)) - first) / (last - first)
        return np.clip(places, 0.0, 1.0)

    def value(self, place: float) -> float:
        """Return the value that stands at a place from 0 to 1."""
        first, last = self._warped(np.array([self.low, self.high]))
        warped = first + place * (last - first)
        if self.width is None:
            return float(warped * self._size)
        return float(np.clip(self.middle + self.width * math.sinh(warped), self.low, self.high))

    @property
    def _size(self) -> float:
        return max(abs(self.low), abs(self.high))

    def _warped(self, values: FloatArray) -> FloatArray:
        cut = np.clip(values, self.low, self.high)
        if self.width is None:
            return np.asarray(cut / self._size)  # first, so that a span of huge values stays finite
        warped: FloatArray = np.arcsinh(cut / self.width - self.middle / self.width)
        return warped


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Shares of the present values in bins that both sides share; a side without values is empty.

    Attributes:
        before: Shares of the reference (bins,).
        after: Shares of the window (bins,).
        beyond: Shares of both sides that lie beyond the axis, and stand in its outermost bins.
    """

    scale: Scale
    before: tuple[float, ...]
    after: tuple[float, ...]
    beyond: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One category's share of the present values; `rest` counts the categories of a bar for many."""

    label: str
    before: float
    after: float
    rest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPicture:
    """One column before and after, with what the drift test said; `values` is None without any value."""

    drift: ColumnDrift
    values: Histogram | tuple[Bar, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRate:
    """The share of rows without a value in one column."""

    column: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePicture:
    """Scores of window and reference, the flood mark, and the shares of both that lie above it."""

    histogram: Histogram
    threshold: float
    above: tuple[float, float]


def furthest_columns(verdict: DriftVerdict, count: int = SHOWN_COLUMNS) -> list[ColumnDrift]:
    """Return the scored columns that moved most, measured in their thresholds, the furthest first."""
    scored = [column for column in verdict.columns if column.score is not None and column.score > 0]
    scored.sort(key=lambda column: (column.score or 0.0) / column.threshold, reverse=True)
    return scored[:count]


def column_pictures(
    reference: pd.DataFrame, current: pd.DataFrame, schema: FeatureSchema, verdict: DriftVerdict, *, seed: int
) -> tuple[ColumnPicture, ...]:
    """Draw the columns that moved most from at most `ROW_CAP` rows of either side.

    Raises:
        InvalidWindowError: Either side lacks a feature or holds one of another kind.
    """
    before, after = (
        clean_frame(capped_sample(side, seed=seed, cap=ROW_CAP), schema) for side in (reference, current)
    )
    numeric = set(schema.names("numeric"))
    pictures = []
    for drift in furthest_columns(verdict):
        sides = before[drift.column].dropna(), after[drift.column].dropna()
        values: Histogram | tuple[Bar, ...] | None = None
        if any(len(side) for side in sides):
            values = (
                histogram(*(side.to_numpy(np.float64) for side in sides))
                if drift.column in numeric
                else bars(*sides)
            )
        pictures.append(ColumnPicture(drift=drift, values=values))
    return tuple(pictures)


def missing_rates(
    reference: pd.DataFrame, current: pd.DataFrame, schema: FeatureSchema
) -> tuple[MissingRate, ...]:
    """Return the missing rates that moved beyond their noise, by all rows, the furthest first.

    Raises:
        InvalidWindowError: Either side lacks a feature or holds one of another kind.
    """
    rows = len(reference), len(current)
    if not all(rows):
        return ()
    rates = [clean_frame(side, schema)[schema.names()].isna().mean() for side in (reference, current)]
    moved = []
    for name in schema.names():
        before, after = (float(side[name]) for side in rates)
        pooled = (before * rows[0] + after * rows[1]) / sum(rows)
        error = math.sqrt(pooled * (1 - pooled) * (1 / rows[0] + 1 / rows[1]))
        if abs(after - before) >= max(LEAST_RISE, STANDARD_ERRORS * error):
            moved.append(MissingRate(column=name, before=before, after=after))
    moved.sort(key=lambda item: abs(item.after - item.before), reverse=True)
    return tuple(moved[:SHOWN_MISSING])


def score_picture(reference: FloatArray, current: FloatArray, threshold: float) -> ScorePicture | None:
    """Draw a window's scores (rows,) over the reference's (rows,), with the flood mark; None without any."""
    sides = [side[np.isfinite(side)] for side in (reference, current)]
    if not any(len(side) for side in sides):
        return None
    above = [float((side > threshold).mean()) if len(side) else 0.0 for side in sides]
    drawn = histogram(*sides, bins=SCORE_BINS, shown=threshold)
    return ScorePicture(histogram=drawn, threshold=threshold, above=(above[0], above[1]))


def histogram(
    before: FloatArray, after: FloatArray, *, bins: int = BINS, shown: float | None = None
) -> Histogram:
    """Count finite values of two sides in bins of one axis, on which `shown` has a place too."""
    scale = _scale([side for side in (before, after) if len(side)], shown)
    shares, beyond = [], []
    for side in (before, after):
        places = np.minimum((scale.place(side) * bins).astype(int), bins - 1)
        counts = np.bincount(places, minlength=bins)
        shares.append(tuple((counts / len(side)).tolist()) if len(side) else ())
        outside = (side < scale.low) | (side > scale.high)
        beyond.append(float(outside.mean()) if len(side) else 0.0)
    return Histogram(scale=scale, before=shares[0], after=shares[1], beyond=(beyond[0], beyond[1]))


def bars(before: pd.Series, after: pd.Series) -> tuple[Bar, ...]:
    """Return the categories whose share changed most, and all others as one."""
    counts = pd.DataFrame({"before": before.value_counts(), "after": after.value_counts()}).fillna(0.0)
    shares = counts / counts.sum().clip(lower=1.0)
    order = pd.DataFrame(
        {"change": (shares["after"] - shares["before"]).abs(), "share": shares.max(axis=1)}
    ).sort_values(["change", "share"], ascending=False, kind="stable")
    shares = shares.loc[order.index]
    shown, rest = shares.iloc[:SHOWN_CATEGORIES], shares.iloc[SHOWN_CATEGORIES:]
    drawn = [Bar(label=str(label), before=float(b), after=float(a)) for label, b, a in shown.itertuples()]
    if len(rest):
        before_rest, after_rest = rest.sum()
        drawn.append(Bar(label="all others", before=before_rest, after=after_rest, rest=len(rest)))
    return tuple(drawn)


def _scale(sides: list[FloatArray], shown: float | None) -> Scale:
    """Return the axis of some sides: the few furthest values of each neither stretch nor skew it."""
    points = np.concatenate(
        [np.quantile(_trimmed(side), np.linspace(0, 1, 101), method="nearest") for side in sides]
    )
    ends = points if shown is None else np.append(points, shown)
    low, high = float(ends.min()), float(ends.max())
    size = max(abs(low), abs(high))
    if high / 2 - low / 2 <= 1e-9 * size:  # one value, or hardly more
        half = max(size, 1.0) / 2
        furthest = float(np.finfo(float).max) / 2
        return Scale(low=max(low - half, -furthest), high=min(high + half, furthest))
    middle = float(np.quantile(points, 0.5, method="nearest"))
    width = _width(points, middle)
    if high / LONG_TAIL - low / LONG_TAIL <= width:
        return Scale(low=low, high=high)
    return Scale(low=low, high=high, middle=middle, width=max(width / SPREAD_OUT, 1e-12 * size))


def _trimmed(values: FloatArray) -> FloatArray:
    cut = max(1, int(TRIMMED * len(values)))
    inner = np.sort(values)[cut : len(values) - cut]
    return inner if len(inner) else values


def _width(points: FloatArray, middle: float) -> float:
    """Return the interquartile range, or of a column that is mostly one value how far others lie off."""
    first, third = np.quantile(points, [0.25, 0.75], method="nearest").tolist()
    if third > first:
        return float(third - first)
    with np.errstate(over="ignore"):
        off = np.abs(points - middle)
    return float(np.quantile(off[off > 0], 0.25, method="nearest")) if bool((off > 0).any()) else 0.0
