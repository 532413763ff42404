"""Order statistics of normal scores as flood marks, and conformal p-values with a false discovery rate.

All of it holds whatever the distribution of the scores, as long as fresh normal rows are exchangeable with
the calibration rows. Everywhere a score is an alert when it lies above a mark.
"""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from training.errors import TrainingFailedError

TIE_MARGIN = 1e-5
"""The same row scores a few last digits apart in another batch or on another machine: rows that tie with the
flood mark must not become alerts by that. Relative to the mark."""

CONFIDENCE = 0.9
"""Over calibration samples, the probability that a calibration-conditional mark keeps its target."""

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def above_ties(scores: Array) -> Array:
    """Raise each score by the tie margin; the order of the scores stays."""
    raised: Array = scores + TIE_MARGIN * np.abs(scores)
    return raised


def upper_order_statistic(scores: Array, target_alert_rate: float) -> float:
    """Return the k-th smallest score, k = ceil((n + 1)(1 - alpha)): split conformal prediction.

    A new row exchangeable with the calibration rows scores above it with probability at most alpha, whatever
    the distribution (Vovk, Gammerman and Shafer 2005; Lei et al. 2018, "Distribution-free predictive
    inference for regression", section 2.2). So does at most a share alpha of the calibration rows.

    Raises:
        TrainingFailedError: There are too few scores (n,) for the target.
    """
    # A fraction of the decimal number as written: 0.1 in binary would move k by one at round row counts.
    alpha = Fraction(str(target_alert_rate))
    rank = math.ceil((scores.size + 1) * (1 - alpha))
    if rank > scores.size:
        raise _too_few(scores.size, target_alert_rate, math.ceil((1 - alpha) / alpha))
    return _mark(scores, rank)


def conditional_order_statistic(scores: Array, target_alert_rate: float) -> float:
    """Return the lowest order statistic above which fresh rows lie at a rate of at most the target, surely.

    The rate above the k-th smallest of n scores varies with the calibration sample as Beta(n + 1 - k, k), or
    less where scores tie. k is the smallest for which that Beta's `CONFIDENCE` quantile is at most alpha
    (Vovk 2012, "Conditional validity of inductive conformal predictors", proposition 2a). The Beta's
    distribution at alpha is a binomial's tail, so n + 1 - k is the 1 - `CONFIDENCE` quantile of
    Binomial(n, alpha).

    Raises:
        TrainingFailedError: There are too few scores (n,) for the target.
    """
    above = int(binom.ppf(1 - CONFIDENCE, scores.size, target_alert_rate)) if scores.size else 0
    if above < 1:
        needed = math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-target_alert_rate))
        raise _too_few(scores.size, target_alert_rate, needed)
    return _mark(scores, scores.size + 1 - above)


def p_values(calibration: Array, scores: Array) -> Array:
    """Return each score's conformal p-value (rows,): how rarely a normal row scores as high.

    (1 + the number of the n calibration scores that are as high) / (n + 1) (Bates et al. 2023, "Testing for
    outliers with conformal p-values"). Of a normal row, it is at most t with probability at most t.

    Args:
        calibration: Of held-out normal rows, (n,), in any order.
        scores: Of the rows in question, (rows,).

    Raises:
        ValueError: There is no calibration score, or a score is not finite.
    """
    return _levels(calibration, scores) / (calibration.size + 1)


def level_counts(calibration: Array, scores: Array) -> Counts:
    """Count the scores at each p-value that there can be: entry j of n + 1 counts (j + 1) / (n + 1).

    The counts of a file's batches add up, so that one pass over it counts and a second one decides.

    Raises:
        ValueError: There is no calibration score, or a score is not finite.
    """
    counts: Counts = np.bincount(_levels(calibration, scores) - 1, minlength=calibration.size + 1)
    return counts


def discovery_mark(calibration: Array, counts: Counts, false_discovery_rate: float) -> float:
    """Return the mark above which rows are alerts, few of them false (Benjamini and Hochberg 1995).

    Of the alerts, the expected share that is normal is at most `false_discovery_rate`: conformal p-values
    that share their calibration rows depend on each other positively (Bates et al. 2023, theorem 2). That
    holds for the batch as a whole, on average over calibration samples.

    Args:
        calibration: Of held-out normal rows, (n,), in any order.
        counts: Of `level_counts` with the same calibration, added up over all batches, (n + 1,).
        false_discovery_rate: Between 0 and 1.

    Returns:
        The mark; infinity, above which no row is, where no row stands out.

    Raises:
        ValueError: The rate is out of range, or the counts are not those of this calibration.
    """
    if not 0 < false_discovery_rate < 1:
        raise ValueError(f"the false discovery rate is {false_discovery_rate}; it must lie between 0 and 1")
    if counts.shape != (calibration.size + 1,) or (counts < 0).any():
        raise ValueError(
            f"{calibration.size} calibration scores need {calibration.size + 1} counts from 0 on"
        )
    _require_finite(calibration)
    # Compared in whole numbers: p-value <= rate * discoveries / rows, each side times (n + 1) * rows.
    rate, found = Fraction(str(false_discovery_rate)), np.cumsum(counts)
    rows, bound = int(found[-1]), rate * (calibration.size + 1)
    levels = (np.flatnonzero(counts) + 1).tolist()
    allowed = [level for level in levels if level * rows <= bound * int(found[level - 1])]
    return _mark(calibration, calibration.size + 1 - allowed[-1]) if allowed else math.inf


def _levels(calibration: Array, scores: Array) -> Counts:
    """Return 1 + the number of calibration scores that each score does not lie above, (rows,)."""
    _require_finite(calibration)
    _require_finite(scores)
    if not calibration.size:
        raise ValueError("there is no calibration score; a p-value needs some")
    marks = above_ties(np.sort(calibration))
    return 1 + calibration.size - np.searchsorted(marks, scores, side="left")


def _mark(scores: Array, rank: int) -> float:
    return float(above_ties(np.partition(scores, rank - 1)[rank - 1 : rank])[0])


def _require_finite(scores: Array) -> None:
    if wrong := scores.size - int(np.isfinite(scores).sum()):
        raise ValueError(f"{wrong} of {scores.size} scores are not finite")


def _too_few(rows: int, target_alert_rate: float, needed: int) -> TrainingFailedError:
    return TrainingFailedError(
        f"{rows} calibration rows are too few for a target alert rate of {target_alert_rate:.4g}",
        hint=f"At least {needed} are needed: use more windows or a higher target.",
    )
