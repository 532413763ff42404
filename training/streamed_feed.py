"""Rows that do not fit memory, read from this rank's scratch folder in another order each epoch.

A chunk of an epoch takes one block, drawn anew each epoch, from each of 64 equal stretches of the data, and
shuffles their rows: what is old meets what is new in every step. Blocks, chunks and steps are those of all
ranks together and do not depend on their number. Files are read with plain reads into buffers: memory that
maps a file would count as this process's.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from training.blocks import TRAINING, VALIDATION, Layout
from training.encoding import Features
from training.errors import RetryableError
from training.feed import Chunk, Positions, dealt

BLOCKS_PER_CHUNK = 64
PART_BLOCKS = 16
"""Read at a time where the order is that of the file."""


class StreamedFeed:
    """The rows that `BlockWriter`s of all ranks have written, for the fit loop; see `training.feed.Feed`.

    Args:
        folder: This rank's, with its blocks.
        layout: Of all ranks.
        training: Training rows of every block of all ranks, (blocks,).
        validation: Validation rows, likewise.
        rank: This rank, of `size`.
        size: The number of ranks.
    """

    def __init__(  # noqa: PLR0913 - what all ranks agree on, and what is this one's
        self,
        folder: Path,
        layout: Layout,
        *,
        training: Positions,
        validation: Positions,
        rank: int,
        size: int,
    ) -> None:
        self.rows, self.width = layout.rows, layout.width
        self.training_rows, self.validation_rows = int(training.sum()), int(validation.sum())
        self._folder, self._layout, self._training = folder, layout, training
        self._own = layout.own_blocks(rank, size)
        self._offsets = np.concatenate(([0], np.cumsum(training[self._own.start : self._own.stop])))
        self._own_validation = int(validation[self._own.start : self._own.stop].sum())

    def steps(self, batch_rows: int) -> int:
        """Return the steps of an epoch."""
        return int(self._steps(batch_rows).sum())

    def chunks(self, epoch: int, batch_rows: int, first_step: int = 0) -> Iterator[Chunk]:
        """Yield the epoch's chunks, reading the next one while the caller works on one."""
        ends = np.concatenate(([0], np.cumsum(self._steps(batch_rows))))
        drawn = self._drawn(epoch)
        wanted = [chunk for chunk in range(len(drawn)) if ends[chunk + 1] > first_step]
        with ThreadPoolExecutor(1) as reader:
            ahead = [reader.submit(self._chunk, epoch, chunk, drawn[chunk], ends) for chunk in wanted[:1]]
            for following in [*wanted[1:], None]:
                chunk = ahead.pop().result() if ahead else None
                if following is not None:
                    ahead.append(reader.submit(self._chunk, epoch, following, drawn[following], ends))
                if chunk is not None:
                    yield chunk

    def validation(self) -> Iterator[Features]:
        """Yield this rank's validation rows."""
        return self._file(VALIDATION, self._own_validation)

    def parts(self) -> Iterator[Features]:
        """Yield all of this rank's rows."""
        yield from self._file(TRAINING, int(self._offsets[-1]))
        yield from self.validation()

    def _stretches(self) -> Positions:
        """Return where the equal stretches of blocks begin, and the last one ends."""
        blocks = len(self._training)
        stretches = min(BLOCKS_PER_CHUNK, blocks)
        starts: Positions = blocks * np.arange(stretches + 1) // stretches
        return starts

    def _steps(self, batch_rows: int) -> Positions:
        """Return the steps of each chunk, the same in every epoch: as its share of the blocks has it."""
        lengths = np.diff(self._stretches())
        blocks = np.array([(lengths > chunk).sum() for chunk in range(lengths.max())])
        rows = self.training_rows * blocks / blocks.sum()
        steps: Positions = np.maximum(1, np.ceil(rows / batch_rows)).astype(np.int64)
        return steps

    def _drawn(self, epoch: int) -> list[Positions]:
        """Return the blocks of each chunk, in ascending order."""
        generator = np.random.default_rng((self._layout.seed, epoch))
        starts = self._stretches()
        orders = [generator.permutation(np.arange(start, end)) for start, end in pairwise(starts)]
        longest = max(map(len, orders))
        return [
            np.array([order[chunk] for order in orders if len(order) > chunk]) for chunk in range(longest)
        ]

    def _chunk(self, epoch: int, chunk: int, blocks: Positions, ends: Positions) -> Chunk:
        starts = np.concatenate(([0], np.cumsum(self._training[blocks])))
        order = np.random.default_rng((self._layout.seed, epoch, chunk)).permutation(starts[-1])
        own_blocks = np.flatnonzero((blocks >= self._own.start) & (blocks < self._own.stop))
        first, last = (starts[own_blocks[0]], starts[own_blocks[-1] + 1]) if own_blocks.size else (0, 0)
        own, bounds = dealt((order >= first) & (order < last), int(ends[chunk + 1] - ends[chunk]))
        return Chunk(
            rows=self._read(blocks[own_blocks]),
            order=order[own] - first,
            bounds=bounds,
            first_step=int(ends[chunk]),
        )

    def _read(self, blocks: Positions) -> Features:
        counts = self._training[blocks]
        rows: Features = np.empty((int(counts.sum()), self.width), dtype=np.float32)
        with (self._folder / TRAINING).open("rb", buffering=0) as file:
            done = 0
            for block, count in zip(blocks.tolist(), counts.tolist(), strict=True):
                file.seek(4 * self.width * int(self._offsets[block - self._own.start]))
                _fill(file, rows[done : done + count])
                done += count
        return rows

    def _file(self, name: str, rows: int) -> Iterator[Features]:
        """Yield a file's `rows` rows from its beginning, a few blocks at a time."""
        step = self._layout.rows_per_block * PART_BLOCKS
        with (self._folder / name).open("rb", buffering=0) as file:
            for start in range(0, rows, step):
                part: Features = np.empty((min(step, rows - start), self.width), dtype=np.float32)
                _fill(file, part)
                yield part


def _fill(file: BinaryIO, rows: Features) -> None:
    """Read exactly these rows.

    Raises:
        RetryableError: The file ends before.
    """
    rest = rows.data.cast("B") if rows.size else memoryview(b"")
    while rest:
        read = file.readinto(rest)  # type: ignore[attr-defined] # a raw file has it
        if not read:
            raise RetryableError(
                f"{file.name} ends before its rows do",
                hint="Something truncated it; train again, which encodes the rows anew.",
            )
        rest = rest[read:]
