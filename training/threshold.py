"""The flood mark: from the scores of held-out normal rows to the line above which a row is an alert."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from training.errors import ConfigurationError, TrainingFailedError
from training.types import Threshold

TIE_MARGIN = 1e-5
"""The same row scores a few last digits apart in another batch or on another machine: rows that tie with the
flood mark must not become alerts by that. Relative to the mark."""

Scores = npt.NDArray[np.floating]


def calibrate(method: str, scores: Scores, target_alert_rate: float) -> Threshold:
    """Choose the threshold for `scores` (rows,) of held-out normal rows, those of all ranks together.

    Raises:
        ConfigurationError: The method is unknown, or the target is no fraction between 0 and 1.
        TrainingFailedError: There is a score that is not finite, or too few of them for the target.
    """
    if method not in CALIBRATORS:
        raise ConfigurationError(
            f"unknown threshold method {method!r}", hint=f"Allowed: {', '.join(CALIBRATORS)}."
        )
    if not 0 < target_alert_rate < 1:
        raise ConfigurationError(
            f"the target alert rate is {target_alert_rate}", hint="It must lie between 0 and 1."
        )
    wrong = scores.size - int(np.isfinite(scores).sum())
    if wrong:
        raise TrainingFailedError(
            f"{wrong} of {scores.size} calibration scores are not finite",
            hint="The detector diverged: lower its learning rate, or look at the training data.",
        )
    return Threshold(
        value=CALIBRATORS[method](scores.astype(np.float64), target_alert_rate),
        method=method,
        target_alert_rate=target_alert_rate,
        calibration_rows=scores.size,
    )


def upper_order_statistic(scores: npt.NDArray[np.float64], target_alert_rate: float) -> float:
    """Return the k-th smallest score, k = ceil((n + 1)(1 - alpha)): split conformal prediction.

    A new row exchangeable with the calibration rows scores above it with probability at most alpha, whatever
    the distribution (Vovk, Gammerman and Shafer 2005; Lei et al. 2018, "Distribution-free predictive
    inference for regression", section 2.2). So does at most a share alpha of the calibration rows.
    """
    # A fraction of the decimal number as written: 0.1 in binary would move k by one at round row counts.
    alpha = Fraction(str(target_alert_rate))
    rank = math.ceil((scores.size + 1) * (1 - alpha))
    if rank > scores.size:
        needed = math.ceil((1 - alpha) / alpha)
        raise TrainingFailedError(
            f"{scores.size} calibration rows are too few for a target alert rate of {target_alert_rate}",
            hint=f"At least {needed} are needed: use more windows or a higher target.",
        )
    mark = float(np.partition(scores, rank - 1)[rank - 1])
    return mark + TIE_MARGIN * abs(mark)


CALIBRATORS: dict[str, Callable[[npt.NDArray[np.float64], float], float]] = {
    "quantile": upper_order_statistic,
}
