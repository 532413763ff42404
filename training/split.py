"""Which rows train, which calibrate the threshold, which judge: single rows, or blocks of sequences."""

from collections.abc import Sequence
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt

from training.errors import TrainingFailedError
from training.sequences import Positions, run_bounds

FRACTIONS = (0.5, 0.3, 0.2)
"""Of training, calibration and judging. A threshold at a small target rests on the few highest calibration
scores, so that calibration gets more than judging."""


BLOCKS = 30
"""That the rows of sequences are cut into: enough to deal them out by these shares ..."""
WINDOWS_OF_BLOCK = (2, 16)
"""... within these bounds, in lengths of a window: each block has rows that many windows contain."""


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


def split_blocks(
    bounds: Positions, length: int, seed: int, fractions: Sequence[float] = FRACTIONS
) -> npt.NDArray[np.int64]:
    """Split the rows of stretches into parts by whole blocks of time, (rows,): the part of each row, from 0.

    Each stretch is cut into nearly equal blocks, and these are dealt out in random order, each to the part
    that lacks most: all parts see all times. Windows are made within a part, so none crosses a border.

    Args:
        bounds: Of the stretches, as in `training.sequences.Stretches`.
        length: Rows of a window.
        seed: Of the order.
        fractions: Of the parts; the first is trained on.

    Raises:
        TrainingFailedError: A part would be empty, or the first would have no window.
    """
    blocks = cut_blocks(bounds, length)
    sizes = np.diff(blocks)
    part = deal_blocks(sizes, fractions, seed)
    of_rows = np.repeat(part, sizes)
    if len(set(part)) < len(fractions):
        raise TrainingFailedError(
            f"{bounds[-1]} rows in {len(bounds) - 1} stretches without a gap cannot be split into "
            f"{len(fractions)} parts for windows of {length} rows",
            hint=_SHORT,
        )
    numbers = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    require_windows(run_bounds(numbers, of_rows), of_rows == 0, length)
    return of_rows


def deal_blocks(
    weights: npt.NDArray[np.int64], fractions: Sequence[float], seed: int
) -> npt.NDArray[np.int64]:
    """Deal blocks out in random order, each to the part that lacks most; return the part of each, (blocks,).

    Each part gets a block, where there are enough. Blocks without any weight go to the first.
    """
    taken, part = np.zeros(len(fractions)), np.zeros(len(weights), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(weights))
    for left, block in zip(range(len(order), 0, -1), order, strict=True):
        lacking = np.array(fractions) * (taken.sum() + weights[block]) - taken
        if left <= np.sum(taken == 0):  # the last blocks are for parts that have none
            lacking[taken > 0] = -np.inf
        part[block] = lacking.argmax()
        taken[part[block]] += weights[block]
    return part


_SHORT = (
    "Take more windows into the training, raise the detector's max_gap_seconds, or lower its length; "
    "entity_column tells apart rows of several machines."
)


def require_windows(bounds: Positions, used: npt.NDArray[np.bool_], length: int) -> None:
    """Refuse rows among whose stretches of `used` (rows,) rows none is as long as a window.

    Raises:
        TrainingFailedError: None is.
    """
    sizes = np.diff(bounds)[used[bounds[:-1]]]
    if not (sizes >= length).any():
        raise TrainingFailedError(
            f"a window has {length} rows, but the longest of {len(sizes)} stretches of training rows without "
            f"a gap has {sizes.max(initial=0)}",
            hint=_SHORT,
        )


def cut_blocks(bounds: Positions, length: int) -> Positions:
    """Cut stretches into nearly equal blocks; return where these begin, and the last one ends."""
    shortest, longest = (windows * length for windows in WINDOWS_OF_BLOCK)
    size = min(max(int(bounds[-1]) // BLOCKS, shortest), longest)
    cuts = [
        first + (last - first) * np.arange(pieces) // pieces
        for first, last in pairwise(bounds)
        for pieces in [max(1, round((last - first) / size))]
    ]
    return np.concatenate([*cuts, bounds[-1:]]).astype(np.int64)


def _sizes(n: int, fractions: tuple[float, float, float]) -> tuple[int, int, int]:
    calibration, judging = (int(n * fraction) for fraction in fractions[1:])
    return n - calibration - judging, calibration, judging
