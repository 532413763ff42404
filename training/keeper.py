"""Checkpoints as all ranks see them: rank 0 writes and reads, the others are told."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from training import distributed
from training.checkpoint import Arrays, Checkpoint, Checkpoints, Progress

State = Sequence[Any]
"""Keras variables, the network's weights first."""


class Keeper:
    """Keeps a training's checkpoints; without `checkpoints` it keeps nothing.

    Args:
        checkpoints: Where, the same on all ranks.
        every_seconds: Within an epoch, a checkpoint is due so long after the last one.
        clock: Seconds.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None = None,
        *,
        every_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoints, self._every, self._clock = checkpoints, every_seconds, clock
        self._last = clock()

    def resume(self, state: State) -> tuple[Progress, Arrays]:
        """Set the variables, on all ranks, to the newest checkpoint's, or to those of rank 0 without one.

        Returns the progress, and the best weights so far; none before the first.

        Raises:
            RetryableError: The checkpoints cannot be read just now; raised on rank 0.
        """
        found = None
        if distributed.rank() == 0 and self._checkpoints:
            found = self._checkpoints.newest([tuple(variable.shape) for variable in state])
        told = json.dumps([asdict(found.progress), len(found.best)] if found else None)
        progress, weights = json.loads(distributed.said_by_rank_0(told)) or ({}, 0)
        best: Arrays = []
        if weights:
            _set(state, found.best if found else [])
            best = [np.array(variable) for variable in state[:weights]]
        _set(state, found.state if found else [])
        return Progress.of(progress), best

    def due(self) -> bool:
        """Whether a checkpoint is due within an epoch; rank 0 tells, and the others say no."""
        waited = self._clock() - self._last >= self._every
        return self._checkpoints is not None and distributed.rank() == 0 and waited

    def keep(self, state: State, progress: Progress, best: Arrays) -> bool:
        """Write a checkpoint on rank 0; return whether checkpoints are kept.

        Raises:
            RetryableError: It cannot be written; raised on rank 0.
        """
        if self._checkpoints and distributed.rank() == 0:
            values = [np.array(variable) for variable in state]
            self._checkpoints.write(Checkpoint(progress=progress, state=values, best=best))
            self._last = self._clock()
        return self._checkpoints is not None


def _set(state: State, values: Arrays) -> None:
    """Set the first of the variables to rank 0's `values`, and all of them to what they are on rank 0."""
    for variable, value in zip(state, values, strict=False):
        variable.assign(value)
    distributed.share_weights(state)
