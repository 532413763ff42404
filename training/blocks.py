"""The prepared form of rows that do not fit memory: encoded once, in blocks, in each rank's scratch folder.

The rows of all ranks, in their order, are blocks of about half a MiB, of which a rank has consecutive ones.
One file holds the features of its training rows, another those of its validation rows: float32, row by row.
"""

import math
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from training.encoding import Features
from training.errors import RetryableError
from training.storage import said_for
from training.types import TrainingJob

BYTES_PER_BLOCK = 2**19
TRAINING, VALIDATION = "training.float32", "validation.float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows are divided into blocks, and which of them are held out; the same on all ranks.

    Attributes:
        rows: Of all ranks.
        width: Features of a row.
        validation_share: Share of the rows that are held out.
        seed: Decides which.
        bytes_per_block: About so many, of features.
    """

    rows: int
    width: int
    validation_share: float
    seed: int
    bytes_per_block: int = BYTES_PER_BLOCK

    @property
    def rows_per_block(self) -> int:
        """Of all blocks but the last."""
        return max(1, self.bytes_per_block // (4 * self.width))

    @property
    def blocks(self) -> int:
        """Of all ranks."""
        return math.ceil(self.rows / self.rows_per_block)

    def own_blocks(self, rank: int, size: int) -> range:
        """Return the blocks of a rank."""
        return range(self.blocks * rank // size, self.blocks * (rank + 1) // size)

    def own_rows(self, rank: int, size: int) -> tuple[int, int]:
        """Return the first row of a rank, and the first one after its last."""
        own = self.own_blocks(rank, size)
        return own.start * self.rows_per_block, min(own.stop * self.rows_per_block, self.rows)

    def held_out(self, block: int) -> npt.NDArray[np.bool_]:
        """Return which rows of a block are for validation, (rows,)."""
        rows = min(self.rows_per_block, self.rows - block * self.rows_per_block)
        return (
            np.random.default_rng((self.seed, block)).random(rows, dtype=np.float32) < self.validation_share
        )


def scratch_folder(job: TrainingJob, rank: int) -> Path:
    """Return a rank's own folder, which a later attempt finds and empties."""
    return Path(job.scratch or job.output) / f"scratch-{job.request.id}-{rank}"


class BlockWriter:
    """Writes a rank's encoded rows; `training` and `validation` count those of each of its blocks."""

    def __init__(self, folder: Path, layout: Layout, blocks: range) -> None:
        self._folder, self._layout, self._blocks = folder, layout, blocks
        self.training = np.zeros(len(blocks), dtype=np.int64)
        self.validation = np.zeros(len(blocks), dtype=np.int64)
        first, rows = blocks.start * layout.rows_per_block, layout.rows
        last = min(blocks.stop * layout.rows_per_block, rows)
        self._next, self._needed = first, 4 * layout.width * max(0, last - first)

    def write(self, parts: Iterator[Features]) -> None:
        """Write all rows, which come in their order, in parts of any length.

        Raises:
            RetryableError: The disk is full; nothing is left in the folder.
        """
        shutil.rmtree(self._folder, ignore_errors=True)  # of an earlier attempt
        try:
            with said_for(str(self._folder), needed=self._needed), ExitStack() as stack:
                self._folder.mkdir(parents=True)
                self._require_space()
                files = [
                    stack.enter_context((self._folder / name).open("wb")) for name in (TRAINING, VALIDATION)
                ]
                for features in parts:
                    self._write_part(features, *files)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _write_part(self, features: Features, training: BinaryIO, validation: BinaryIO) -> None:
        done = 0
        while done < len(features):
            block, inside = divmod(self._next, self._layout.rows_per_block)
            held_out = self._layout.held_out(block)[inside : inside + len(features) - done]
            rows = features[done : done + len(held_out)]
            training.write(rows[~held_out].data)
            validation.write(rows[held_out].data)
            self.training[block - self._blocks.start] += len(rows) - held_out.sum()
            self.validation[block - self._blocks.start] += held_out.sum()
            done += len(rows)
            self._next += len(rows)

    def _require_space(self) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < self._needed:
            raise RetryableError(
                f"{self._folder} has {free / 2**20:.0f} MiB free, and the encoded rows need "
                f"{self._needed / 2**20:.0f} MiB",
                hint="Nothing of it is left. Make room there, or name another scratch folder.",
            )
