"""Which rows train, which calibrate the threshold, which judge; and which are left out of training."""

from dataclasses import dataclass
from itertools import count

import numpy as np

from training.errors import TrainingFailedError

FRACTIONS = (0.5, 0.3, 0.2)
"""Of training, calibration and judging. A threshold at a small target rests on the few highest calibration
scores, so that calibration gets more than judging."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrustedRows:
    """`mask` has shape (rows,), bool, true for a row that may train; `reason` is one sentence."""

    mask: np.ndarray
    reason: str


def split_rows(
    n: int, seed: int, fractions: tuple[float, float, float] = FRACTIONS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split `n` rows at random into training, calibration and judging rows.

    The three are disjoint, complete, and each in ascending order. Calibration and judging get their
    share rounded down, training the rest.

    Raises:
        TrainingFailedError: One of the three would be empty.
        ValueError: The fractions are not three positive shares that sum to one.
    """
    if not all(fraction > 0 for fraction in fractions) or not abs(sum(fractions) - 1) < 1e-9:  # noqa: PLR2004 - rounding
        raise ValueError(f"the fractions are {fractions}; they must be positive and sum to one")
    training, calibration, _ = _sizes(n, fractions)
    if not all(_sizes(n, fractions)):
        needed = next(rows for rows in count(n + 1) if all(_sizes(rows, fractions)))
        raise TrainingFailedError(
            f"{n} rows cannot be split into training, calibration and judging rows",
            hint=f"at least {needed} rows are needed: take more windows into the training",
        )
    order = np.random.default_rng(seed).permutation(n)
    parts = np.split(order, [training, training + calibration])
    return np.sort(parts[0]), np.sort(parts[1]), np.sort(parts[2])


def trusted_rows(
    scores: np.ndarray, threshold: float, target_alert_rate: float, factor: float
) -> TrustedRows:
    """Leave the champion's alerts out of the training rows, for as long as its alerts mean something.

    Training on anomalies teaches a model to call them normal, so rows the champion alerts on are left
    out. But after a drift the champion alerts on the new normal, and leaving that out would train the
    next model on the past: beyond `factor` times the target alert rate, no row is left out.

    Args:
        scores: (rows,) of the champion on one window, finite, at least one.
        threshold: The champion's; a row above it is an alert.
        target_alert_rate: The champion's.
        factor: How many times the target the alert rate may be before alerts are put down to drift.

    Raises:
        ValueError: A score or the threshold is not finite, there are no scores, or `factor` times the
            target is not between 0 and 1, so that no alert rate could show a drift.
    """
    limit = factor * target_alert_rate
    if not 0 < limit < 1:
        raise ValueError(f"factor x target_alert_rate is {limit}; it must lie between 0 and 1")
    if not scores.size or not np.isfinite(scores).all() or not np.isfinite(threshold):
        raise ValueError(
            f"{scores.size} scores, {np.sum(~np.isfinite(scores))} of them not finite, and threshold "
            f"{threshold}: alerts cannot be told"
        )
    alerts = scores > threshold
    rate = float(np.mean(alerts))
    seen = f"the champion alerts on {np.sum(alerts)} of {len(scores)} rows ({rate:.2%})"
    if rate <= limit:
        return TrustedRows(
            mask=~alerts, reason=f"{seen}, no more than {limit:.2%}: its alerts are left out of training"
        )
    return TrustedRows(
        mask=np.ones(len(scores), dtype=bool),
        reason=f"{seen}, more than {limit:.2%}: that is drift, not anomalies, and no row is left out",
    )


def _sizes(n: int, fractions: tuple[float, float, float]) -> tuple[int, int, int]:
    calibration, judging = (int(n * fraction) for fraction in fractions[1:])
    return n - calibration - judging, calibration, judging
