"""The calibrators: ways to set the flood mark, by name. A new one is a function and a line in the table."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from training.conformal import above_ties, conditional_order_statistic, upper_order_statistic
from training.errors import TrainingFailedError
from training.peaks import tail_mark

MIN_ANOMALIES = 20
"""Labelled ones that `f_beta` needs: with fewer, one more or less moves the recall by over 5 %."""
MOST_ALERTS = 0.5
"""Of normal rows; a mark below their middle tells anomalies from nothing."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSpec:
    """How the flood mark is set, as configured under `[threshold]`.

    Attributes:
        method: A name in `CALIBRATORS`.
        target_alert_rate: The share of normal rows that may be alerts. `f_beta` and `alert_budget` come to
            one of their own instead.
        beta: For `f_beta`: how many times as much recall counts as precision.
        alerts_per_day: For `alert_budget`: false alerts that are affordable in a day.
    """

    method: str = "quantile"
    target_alert_rate: float = 0.03
    beta: float = 1.0
    alerts_per_day: float | None = None

    def __post_init__(self) -> None:
        if self.method not in CALIBRATORS:
            raise ValueError(f"method is {self.method!r}; allowed are {', '.join(CALIBRATORS)}")
        if not 0 < self.target_alert_rate < 1:
            raise ValueError(f"target_alert_rate is {self.target_alert_rate}; it must lie between 0 and 1")
        if not 0 < self.beta < math.inf:
            raise ValueError(f"beta is {self.beta}; it must be positive and finite")
        if self.method != "f_beta" and self.beta != 1:
            raise ValueError(f"beta is for the method 'f_beta'; {self.method!r} has no use for it")
        if (self.alerts_per_day is not None) != (self.method == "alert_budget"):
            raise ValueError(
                f"alerts_per_day is {self.alerts_per_day} and method {self.method!r}; 'alert_budget' "
                "needs it, and no other method has a use for it"
            )
        if self.alerts_per_day is not None and not 0 < self.alerts_per_day < math.inf:
            raise ValueError(f"alerts_per_day is {self.alerts_per_day}; it must be positive and finite")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationScores:
    """What a calibrator looks at, none of it seen in training; float64, higher is more anomalous.

    Attributes:
        normal: Scores (n,) of rows that no label calls anomalous.
        anomalous: Scores (m,) of those that a label does.
        rows_per_day: Of the windows, normal and anomalous; None where their times do not tell.
    """

    normal: Array
    anomalous: Array = field(default_factory=lambda: np.empty(0))
    rows_per_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where a calibrator sets the flood mark, and the alert rate of normal rows that it is set for."""

    value: float
    alert_rate: float
    note: str = ""


def quantile(spec: ThresholdSpec, scores: CalibrationScores) -> Mark:
    """Keep the alert rate at the target, on average over calibration samples."""
    rate = spec.target_alert_rate
    return Mark(value=upper_order_statistic(scores.normal, rate), alert_rate=rate)


def conformal(spec: ThresholdSpec, scores: CalibrationScores) -> Mark:
    """Keep the alert rate at or below the target, with 90 % probability over calibration samples."""
    rate = spec.target_alert_rate
    return Mark(value=conditional_order_statistic(scores.normal, rate), alert_rate=rate)


def peaks_over_threshold(spec: ThresholdSpec, scores: CalibrationScores) -> Mark:
    """Extrapolate the tail to targets that the rows are too few for; where that is unsound, as `quantile`."""
    rate = spec.target_alert_rate
    found = tail_mark(scores.normal, rate)
    if isinstance(found, float):
        return Mark(value=float(above_ties(np.array([found]))[0]), alert_rate=rate)
    try:
        value = upper_order_statistic(scores.normal, rate)
    except TrainingFailedError as error:
        raise TrainingFailedError(f"{error.message}; the tail: {found}", hint=error.hint) from error
    return Mark(value=value, alert_rate=rate, note=f"quantile instead: {found}")


def f_beta(spec: ThresholdSpec, scores: CalibrationScores) -> Mark:
    """Maximise F-beta on the calibration rows (van Rijsbergen 1979), which hold anomalies as they came.

    The mark lies in the middle between the two scores that it parts, and as high as the maximum allows.
    The alert rate it is set for is that of the calibration's normal rows by Laplace's rule of succession,
    (alerts + 1) / (n + 2): none in n rows does not mean never. Gates and drift tests hold fresh rows
    against it.

    Raises:
        TrainingFailedError: There are too few labelled anomalies or normal rows, an anomaly's score is not
            finite, or the maximum is where most normal rows are alerts.
    """
    normal, anomalous = np.sort(scores.normal), np.sort(scores.anomalous)
    if anomalous.size < MIN_ANOMALIES or not normal.size:
        raise TrainingFailedError(
            f"{anomalous.size} labelled anomalies beside {normal.size} normal rows are too few for F-beta",
            hint=f"At least {MIN_ANOMALIES} and 1 are needed: use more windows, or another threshold.method.",
        )
    if wrong := anomalous.size - int(np.isfinite(anomalous).sum()):
        raise TrainingFailedError(
            f"{wrong} of {anomalous.size} scores of labelled anomalies are not finite",
            hint="Look at those rows, or use another threshold.method.",
        )
    distinct = np.unique(np.concatenate([normal, anomalous]))
    parted = np.flatnonzero(distinct[1:] > above_ties(distinct[:-1]))
    marks = distinct[parted] / 2 + distinct[parted + 1] / 2
    found = anomalous.size - np.searchsorted(anomalous, marks, side="right")
    false = normal.size - np.searchsorted(normal, marks, side="right")
    square = spec.beta**2
    reached = (1 + square) * found / (square * anomalous.size + found + false)
    best = int(marks.size - 1 - np.argmax(reached[::-1])) if marks.size else -1
    if best < 0 or false[best] > MOST_ALERTS * normal.size:
        raise TrainingFailedError(
            f"no mark with alerts on at most {MOST_ALERTS:.0%} of the normal rows has the highest F-beta",
            hint="The detector does not tell anomalies from normal rows: check the labels, or lower beta.",
        )
    return Mark(value=float(marks[best]), alert_rate=(int(false[best]) + 1) / (normal.size + 2))


def alert_budget(spec: ThresholdSpec, scores: CalibrationScores) -> Mark:
    """Keep the alerts of normal rows at so many a day, if as many rows come in a day as in these windows.

    Raises:
        TrainingFailedError: It is unknown how many that is, or there are no more than may be alerts.
    """
    rows, alerts = scores.rows_per_day, spec.alerts_per_day
    if rows is None or alerts is None:
        raise TrainingFailedError(
            "the rows of a day are unknown: the windows have no times, or all rows have the same",
            hint="Name a time_column that tells them apart, or use another threshold.method.",
        )
    if not alerts < rows:
        raise TrainingFailedError(
            f"threshold.alerts_per_day is {alerts:g}, and only {rows:.4g} rows come in a day",
            hint="Lower it, or use another threshold.method.",
        )
    rate = alerts / rows
    return Mark(value=upper_order_statistic(scores.normal, rate), alert_rate=rate)


CALIBRATORS: Final[dict[str, Callable[[ThresholdSpec, CalibrationScores], Mark]]] = {
    "quantile": quantile,
    "peaks_over_threshold": peaks_over_threshold,
    "f_beta": f_beta,
    "conformal": conformal,
    "alert_budget": alert_budget,
}
