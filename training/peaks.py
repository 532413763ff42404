"""Extreme value theory: a flood mark beyond the calibration scores, from the shape of their tail."""

import math
import warnings

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, genpareto

TAIL = 0.02
"""The share of scores that the tail is fitted to: SPOT's initial level is the 98 % quantile."""
MIN_EXCESSES = 30
MOST_TAIL = 0.1
"""More of the scores than this, for want of rows, would be bulk and not tail."""

SHAPES = (-1.0, 2.0)
"""Below, the likelihood has no maximum (Smith 1985). Above, a mark that is exceeded a tenth as often lies
a hundred times as far beyond the initial level, which so few rows cannot tell."""

DISBELIEF = 0.01
"""A mark that calibration rows exceed so improbably often, or seldom, is not believed."""

Array = npt.NDArray[np.float64]


def tail_mark(scores: Array, target_alert_rate: float) -> float | str:
    """Return the score that a fresh row exceeds at the target rate, or why the fit cannot be relied on.

    Over a high initial level t, excesses are nearly generalised Pareto (Pickands 1975). With shape g and
    scale s fitted by maximum likelihood, the mark is t + s / g ((q n / N)^-g - 1) for the target q, N
    excesses and n scores (Siffer et al. 2017, "Anomaly detection in streams with extreme value theory",
    equation 1).

    Args:
        scores: Of held-out normal rows, (n,), finite.
        target_alert_rate: Between 0 and 1. Near 1 / n, fresh rows are alerts at a rate within a factor of
            three of it (see the tests on real rows); the further below, the less is certain.
    """
    wanted = max(math.ceil(TAIL * scores.size), MIN_EXCESSES)
    if wanted > MOST_TAIL * scores.size:
        needed = math.ceil(MIN_EXCESSES / MOST_TAIL)
        return f"{scores.size} rows are too few to have a tail; {needed} are needed"
    level = float(np.partition(scores, -wanted - 1)[-wanted - 1])
    excesses = scores[scores > level] - level  # fewer than wanted where scores tie with the level
    if excesses.size < MIN_EXCESSES:
        return f"{excesses.size} excesses over the initial level are too few; {MIN_EXCESSES} are needed"
    share = excesses.size / scores.size
    if not target_alert_rate < share:
        return f"the target is not beyond the initial level, which {share:.2%} of the rows exceed"
    shape, scale = _fitted(excesses)
    with np.errstate(all="ignore"):
        mark = level + float(genpareto.isf(target_alert_rate / share, shape, 0, scale))
    return _doubt(scores, target_alert_rate, level, shape, mark) or mark


def _fitted(excesses: Array) -> tuple[float, float]:
    """Return the likeliest shape and scale."""
    unit = float(np.median(excesses))  # the optimiser starts at a scale of 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of steps outside the parameters' range; the result is checked
        shape, _, scale = genpareto.fit(excesses / unit, floc=0)
    return float(shape), unit * float(scale)


def _doubt(scores: Array, target_alert_rate: float, level: float, shape: float, mark: float) -> str | None:
    if not math.isfinite(mark):
        return f"the fitted mark is {mark}"
    if not SHAPES[0] < shape < SHAPES[1]:
        return f"the tail's shape {shape:.2f} is not between {SHAPES[0]:g} and {SHAPES[1]:g}"
    if not mark > level:
        return f"the fitted mark {mark:.4g} is not above the initial level {level:.4g}"
    alerts = int((scores > mark).sum())
    if not binomtest(alerts, scores.size, target_alert_rate).pvalue >= DISBELIEF:
        return f"{alerts} of {scores.size} calibration rows exceed the fitted mark"
    return None
