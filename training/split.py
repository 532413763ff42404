"""Which rows train, which calibrate the threshold, which judge."""

from itertools import count

import numpy as np

from training.errors import TrainingFailedError

FRACTIONS = (0.5, 0.3, 0.2)
"""Of training, calibration and judging. A threshold at a small target rests on the few highest calibration
scores, so that calibration gets more than judging."""


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


def _sizes(n: int, fractions: tuple[float, float, float]) -> tuple[int, int, int]:
    calibration, judging = (int(n * fraction) for fraction in fractions[1:])
    return n - calibration - judging, calibration, judging
