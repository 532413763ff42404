"""Every row once an epoch and by one rank; the rows of a step do not depend on the number of ranks."""

import resource
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.blocks import TRAINING, BlockWriter, Layout
from training.errors import RetryableError, TrainingFailedError
from training.feed import Feed, MemoryFeed
from training.streamed_feed import StreamedFeed

WIDTH = 3
SHARE = 0.2
SEED = 5


def numbered(first: int, last: int, step: int = 1) -> np.ndarray:
    """Return rows that hold their own number."""
    return np.repeat(np.arange(first, last, step, dtype=np.float32)[:, np.newaxis], WIDTH, axis=1)


def in_memory(rows: int, size: int) -> list[Feed]:
    return [
        MemoryFeed(
            numbered(rank, rows, size), rows=rows, rank=rank, size=size, validation_share=SHARE, seed=SEED
        )
        for rank in range(size)
    ]


def streamed(rows: int, size: int, folder: Path, rows_per_block: int = 4) -> list[Feed]:
    layout = Layout(
        rows=rows,
        width=WIDTH,
        validation_share=SHARE,
        seed=SEED,
        bytes_per_block=4 * WIDTH * rows_per_block,
    )
    writers = []
    for rank in range(size):
        first, last = layout.own_rows(rank, size)
        writer = BlockWriter(folder / f"{rank}-of-{size}", layout, layout.own_blocks(rank, size))
        writer.write(numbered(start, min(start + 7, last)) for start in range(first, last, 7))
        writers.append(writer)
    training = np.concatenate([writer.training for writer in writers])
    validation = np.concatenate([writer.validation for writer in writers])
    return [
        StreamedFeed(
            folder / f"{rank}-of-{size}",
            layout,
            training=training,
            validation=validation,
            rank=rank,
            size=size,
        )
        for rank in range(size)
    ]


def steps_of(feed: Feed, epoch: int, batch_rows: int, first_step: int = 0) -> list[list[int]]:
    """Return the rows of each of a rank's steps in an epoch."""
    steps = []
    for chunk in feed.chunks(epoch, batch_rows, first_step):
        for step in range(chunk.steps):
            if chunk.first_step + step >= first_step:
                rows = chunk.rows[chunk.order[chunk.bounds[step] : chunk.bounds[step + 1]]]
                steps.append(rows[:, 0].astype(int).tolist())
    return steps


@given(
    rows=st.integers(30, 900),
    size=st.integers(2, 5),
    batch_rows=st.integers(1, 100),
    form=st.sampled_from(["memory", "disk"]),
)
@settings(deadline=None, max_examples=60)
def test_ranks_together_take_the_steps_of_one(rows: int, size: int, batch_rows: int, form: str) -> None:
    with TemporaryDirectory() as folder:
        one, many = (
            in_memory(rows, ranks) if form == "memory" else streamed(rows, ranks, Path(folder))
            for ranks in (1, size)
        )
        alone = steps_of(one[0], 1, batch_rows)
        together = [steps_of(feed, 1, batch_rows) for feed in many]
        assert {len(steps) for steps in together} == {len(alone)} == {many[0].steps(batch_rows)}
        for step, expected in enumerate(alone):
            assert sorted(chain.from_iterable(steps[step] for steps in together)) == sorted(expected)
            assert len(expected) <= 2 * batch_rows
        held_out = np.concatenate([part[:, 0] for feed in many for part in feed.validation()]).astype(int)
        assert Counter([*chain.from_iterable(alone), *held_out.tolist()]) == Counter(range(rows))
        parts = np.concatenate([part[:, 0] for feed in many for part in feed.parts()]).astype(int)
        assert sorted(parts.tolist()) == list(range(rows))


@pytest.mark.parametrize("form", ["memory", "disk"])
def test_an_epoch_is_the_same_again_another_one_is_not_and_it_can_be_entered_anywhere(
    tmp_path: Path, form: str
) -> None:
    feed, again = (
        (in_memory(1000, 2) if form == "memory" else streamed(1000, 2, tmp_path))[1] for _ in range(2)
    )
    steps = steps_of(feed, 1, 30)
    assert steps == steps_of(again, 1, 30)
    assert steps != steps_of(feed, 2, 30)
    for first in (0, 1, 17, len(steps) - 1, len(steps)):
        assert steps_of(feed, 1, 30, first) == steps[first:]


def test_a_step_mixes_rows_from_all_over_the_data(tmp_path: Path) -> None:
    (feed,) = streamed(100_000, 1, tmp_path, rows_per_block=100)
    for rows in steps_of(feed, 1, 512)[:-1]:
        spread = np.histogram(rows, bins=4, range=(0, 100_000))[0] / len(rows)
        assert spread.min() > 0.1


def test_too_few_rows_to_hold_some_out_are_refused() -> None:
    with pytest.raises(TrainingFailedError, match=r"1 training rows are too few to hold out a share of 0\.2"):
        in_memory(1, 1)


def test_a_scratch_file_that_lost_its_end_is_told(tmp_path: Path) -> None:
    (feed,) = streamed(1000, 1, tmp_path)
    path = tmp_path / "0-of-1" / TRAINING
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RetryableError, match="ends before its rows do"):
        steps_of(feed, 1, 30)


def test_a_disk_that_is_full_leaves_nothing_and_names_the_path_and_what_it_needs(tmp_path: Path) -> None:
    layout = Layout(rows=10**11, width=WIDTH, validation_share=SHARE, seed=SEED)
    writer = BlockWriter(tmp_path / "scratch", layout, range(layout.blocks))
    with pytest.raises(
        RetryableError, match=r"scratch has \d+ MiB free, and the encoded rows need 1144409 MiB"
    ):
        writer.write(iter(()))
    assert not (tmp_path / "scratch").exists()


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    program = """if True:
        import sys
        from pathlib import Path
        import numpy as np
        from training.blocks import BlockWriter, Layout
        from training.errors import RetryableError
        layout = Layout(rows=100_000, width=10, validation_share=0.2, seed=5)
        writer = BlockWriter(Path(sys.argv[1]), layout, range(layout.blocks))
        try:
            writer.write(np.zeros((1000, 10), dtype=np.float32) for _ in range(100))
        except RetryableError as error:
            print(error.message)"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "scratch")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)),
    )
    assert done.stdout == f"{tmp_path}/scratch cannot be written, 3.8 MiB are needed: File too large\n", (
        done.stderr
    )
    assert not (tmp_path / "scratch").exists()
