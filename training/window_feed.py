"""How windows of sequences reach the fit loop: as places in this rank's rows, never as copies of them.

The windows of all ranks are numbered in the order of the rows file, and each rank has consecutive ones: their
rows are read in one piece, of which two ranks share at most one window's. As in `training.feed`, the order
of an epoch is drawn once for all ranks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.encoding import Features
from training.errors import TrainingFailedError
from training.feed import ROWS_PER_PART, Chunk, dealt
from training.sequences import Mask, Positions, run_bounds, window_starts
from training.split import cut_blocks, deal_blocks, require_windows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowPlan:
    """The windows of a training, the same on all ranks.

    Attributes:
        length: Rows of a window.
        starts: Where each begins in the rows file, ascending (windows,).
        held_out: Whether it only judges the epochs, (windows,); it then shares no row with one that does not.
            Where none is, all are trained on and judge.
        rank: This rank, of `size`.
        size: The number of ranks.
    """

    length: int
    starts: Positions
    held_out: Mask
    rank: int
    size: int

    @classmethod
    def of(  # noqa: PLR0913 - what all ranks agree on, and what is this one's
        cls, stretch: Positions, *, length: int, validation_share: float, seed: int, rank: int, size: int
    ) -> "WindowPlan":
        """Plan the windows of a rows file whose column `STRETCH` is `stretch` (rows,).

        Whole blocks of time are held out, drawn with `seed`, the same whatever the number of ranks. Rows so
        few that a single block is more than the share hold out none: of a short series, what was not trained
        on scores like an anomaly.

        Raises:
            TrainingFailedError: No stretch is as long as a window, or there are fewer windows than ranks.
        """
        bounds = run_bounds(stretch)
        require_windows(bounds, np.ones(len(stretch), dtype=bool), length)
        sizes = np.diff(cut_blocks(bounds, length))
        windows = np.maximum(sizes - length + 1, 0)  # rows of short blocks would not help
        enough = np.count_nonzero(windows) * validation_share >= 1
        shares = (1 - validation_share, validation_share) if enough else (1.0,)
        part = np.repeat(deal_blocks(windows, shares, seed), sizes)
        starts = window_starts(run_bounds(stretch, part), length)
        held_out = part[starts] == 1
        plan = cls(length=length, starts=starts, held_out=held_out, rank=rank, size=size)
        for name, mask in (("training", ~held_out), ("validation", plan.judging)):
            if mask.sum() < size:
                raise TrainingFailedError(
                    f"{len(stretch)} training rows hold {mask.sum()} {name} windows of {length} rows, "
                    f"for {size} ranks",
                    hint="Train on more windows, or lower the detector's length or training.ranks.",
                )
        return plan

    @property
    def judging(self) -> Mask:
        """Whether a window judges the epochs, (windows,)."""
        return self.held_out if self.held_out.any() else np.ones_like(self.held_out)

    @property
    def own(self) -> slice:
        """This rank's windows."""
        first, last = (len(self.starts) * place // self.size for place in (self.rank, self.rank + 1))
        return slice(first, last)

    @property
    def rows(self) -> tuple[int, int]:
        """The first row of the file that this rank needs, and the one after its last."""
        own = self.starts[self.own]
        return int(own[0]), int(own[-1]) + self.length


class WindowFeed:
    """A `training.feed.Feed` whose rows, but for those of a `Chunk`, are windows.

    Args:
        features: The rows of the file that `plan.rows` asks for, (rows, width), finite.
        plan: The windows.
        seed: Of the order of each epoch.
    """

    def __init__(self, features: Features, plan: WindowPlan, seed: int) -> None:
        self.rows, self.width = len(plan.starts), features.shape[1]
        self._features, self._plan, self._seed = features, plan, seed
        self._training = np.flatnonzero(~plan.held_out)

    @property
    def training_rows(self) -> int:
        """Windows that an epoch goes over, on all ranks."""
        return len(self._training)

    @property
    def validation_rows(self) -> int:
        """Windows that judge an epoch, on all ranks."""
        return int(self._plan.judging.sum())

    def steps(self, batch_rows: int) -> int:
        """Return the steps of an epoch."""
        return math.ceil(self.training_rows / batch_rows)

    def chunks(self, epoch: int, batch_rows: int, first_step: int = 0) -> Iterator[Chunk]:
        """Yield the epoch as one chunk, whose order tells where windows begin."""
        if first_step >= self.steps(batch_rows):
            return
        order = np.random.default_rng((self._seed, epoch)).permutation(self._training)
        mine = (order >= self._plan.own.start) & (order < self._plan.own.stop)
        own, bounds = dealt(mine, self.steps(batch_rows))
        starts = self._plan.starts[order[own]] - self._plan.rows[0]
        yield Chunk(rows=self._features, order=starts, bounds=bounds, first_step=0)

    def validation(self) -> Iterator[Features]:
        """Yield this rank's validation windows, (windows, length, width)."""
        own = self._plan.own
        return self._windows(self._plan.starts[own][self._plan.judging[own]])

    def parts(self) -> Iterator[Features]:
        """Yield all of this rank's windows, (windows, length, width)."""
        return self._windows(self._plan.starts[self._plan.own])

    def _windows(self, starts: npt.NDArray[np.int64]) -> Iterator[Features]:
        at_once = max(1, ROWS_PER_PART // self._plan.length)
        for first in range(0, len(starts), at_once):
            begins = starts[first : first + at_once, None] - self._plan.rows[0]
            yield self._features[begins + np.arange(self._plan.length)]
