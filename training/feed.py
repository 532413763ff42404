"""How rows reach the fit loop: each epoch as chunks, a chunk being rows and the order of its steps.

The order of an epoch is drawn once for all ranks, and a rank takes of each step the rows that are its own:
the rows of a step are the same whatever the number of ranks, every row is seen exactly once an epoch, and all
ranks have the same number of steps. A rank's part of a step may be larger than another's, or empty.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from training.encoding import Features
from training.errors import TrainingFailedError

Positions = npt.NDArray[np.int64]

ROWS_PER_PART = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive steps of an epoch; step i takes `rows[order[bounds[i] : bounds[i + 1]]]`.

    Attributes:
        rows: This rank's rows, (rows, width).
        order: Positions among them, in the order of the steps.
        bounds: Where each step begins in `order`, and the last one ends, (steps + 1,).
        first_step: The number of this chunk's first step in the epoch.
        known_from: The rows from this place on are known anomalies; None where none is.
    """

    rows: Features
    order: Positions
    bounds: Positions
    first_step: int
    known_from: int | None = None

    @property
    def steps(self) -> int:
        """The number of its steps, the same on all ranks."""
        return len(self.bounds) - 1


class Feed(Protocol):
    """This rank's rows for a fit; `rows`, `training_rows` and `validation_rows` count those of all ranks."""

    @property
    def width(self) -> int:
        """Features of a row."""

    @property
    def rows(self) -> int:
        """Training and validation rows of all ranks."""

    @property
    def training_rows(self) -> int:
        """Rows that an epoch goes over, on all ranks."""

    @property
    def validation_rows(self) -> int:
        """Rows that judge an epoch, on all ranks."""

    def steps(self, batch_rows: int) -> int:
        """Return the steps of an epoch when one takes at most `batch_rows` rows of all ranks."""

    def chunks(self, epoch: int, batch_rows: int, first_step: int = 0) -> Iterator[Chunk]:
        """Yield an epoch in the order of its steps, from the chunk on that holds `first_step`."""

    def validation(self) -> Iterator[Features]:
        """Yield this rank's validation rows, always in the same parts."""

    def parts(self) -> Iterator[Features]:
        """Yield all of this rank's rows, training and validation, in parts that fit memory."""


class MemoryFeed:
    """Rows that fit memory: one chunk of everything. Row i of the whole is row i // size of rank i % size.

    Args:
        features: This rank's rows, (rows, width), finite.
        rows: Those of all ranks.
        rank: This rank, of `size`.
        size: The number of ranks.
        validation_share: Share of the rows that are held out; the same rows whatever the number of ranks.
        seed: Decides which, and the order of each epoch.

    Raises:
        TrainingFailedError: The rows are too few to hold some out.
    """

    def __init__(  # noqa: PLR0913 - what all ranks agree on, and what is this one's
        self, features: Features, *, rows: int, rank: int, size: int, validation_share: float, seed: int
    ) -> None:
        held_out = np.random.default_rng(seed).random(rows, dtype=np.float32) < validation_share
        check_held_out(int(held_out.sum()), rows, validation_share)
        self.rows, self.width = rows, features.shape[1]
        self._features, self._rank, self._size, self._seed = features, rank, size, seed
        self._training = np.flatnonzero(~held_out)
        self._validation = np.flatnonzero(held_out[rank::size])

    @property
    def training_rows(self) -> int:
        """Rows that an epoch goes over, on all ranks."""
        return len(self._training)

    @property
    def validation_rows(self) -> int:
        """Rows that judge an epoch, on all ranks."""
        return self.rows - self.training_rows

    def steps(self, batch_rows: int) -> int:
        """Return the steps of an epoch."""
        return math.ceil(self.training_rows / batch_rows)

    def chunks(self, epoch: int, batch_rows: int, first_step: int = 0) -> Iterator[Chunk]:
        """Yield the epoch as one chunk."""
        if first_step >= self.steps(batch_rows):
            return
        order = np.random.default_rng((self._seed, epoch)).permutation(self._training)
        own, bounds = dealt(order % self._size == self._rank, self.steps(batch_rows))
        yield Chunk(rows=self._features, order=order[own] // self._size, bounds=bounds, first_step=0)

    def validation(self) -> Iterator[Features]:
        """Yield this rank's validation rows."""
        for start in range(0, len(self._validation), ROWS_PER_PART):
            yield self._features[self._validation[start : start + ROWS_PER_PART]]

    def parts(self) -> Iterator[Features]:
        """Yield all of this rank's rows."""
        for start in range(0, len(self._features), ROWS_PER_PART):
            yield self._features[start : start + ROWS_PER_PART]


def dealt(own: npt.NDArray[np.bool_], steps: int) -> tuple[Positions, Positions]:
    """Deal what is drawn for all ranks into nearly equal steps.

    Args:
        own: Whether each place of the order is this rank's, (drawn,).
        steps: Their number.

    Returns:
        This rank's places in the order, (own,), and where each step begins among them, and the last one
        ends, (steps + 1,).
    """
    places = np.flatnonzero(own)
    return places, np.searchsorted(places, len(own) * np.arange(steps + 1) // steps)


def check_held_out(held_out: int, rows: int, share: float) -> None:
    """Refuse a division in which training or validation has no row.

    Raises:
        TrainingFailedError: It has none.
    """
    if not 0 < held_out < rows:
        raise TrainingFailedError(
            f"{rows} training rows are too few to hold out a share of {share} for validation",
            hint="Train on more windows.",
        )
