"""The one module that knows River's drift detectors: changes in a stream of numbers."""

from collections.abc import Sequence

from river.drift import ADWIN


def values_since_change(values: Sequence[float], *, alpha: float) -> int:
    """Return how many of the newest values are of one kind: all, where the mean never changed.

    ADWIN keeps the longest stretch of newest values in which no two parts differ in their mean (Bifet and
    Gavalda, Learning from time-changing data with adaptive windowing, SIAM SDM 2007).

    Args:
        values: The stream, oldest first, each about 0 to 1.
        alpha: ADWIN's bound on the chance of a false cut.
    """
    detector = ADWIN(delta=alpha, clock=1)  # type: ignore[no-untyped-call] # river has no types here
    for value in values:
        detector.update(value)  # type: ignore[no-untyped-call] # likewise
    return int(detector.width)
