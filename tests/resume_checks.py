"""What every rank does for test_resume: one training whole, and others that end and go on, in both forms.

Not a test itself: the test starts it under the launcher of Horovod. `python resume_checks.py FOLDER STAGE`:
stage `first` trains whole, and starts a training that ends early; `second` goes on with that one.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from training import distributed
from training import fit as fit_module
from training.blocks import BlockWriter, Layout
from training.checkpoint import Checkpoints
from training.detectors.autoencoder import Autoencoder
from training.encoding import Features
from training.feed import Chunk, Feed
from training.fit import Fitted, fit
from training.intake import hold_in_memory
from training.keeper import Keeper
from training.steps import Ran
from training.storage import Place
from training.streamed_feed import StreamedFeed

ROWS, WIDTH, SHARE, SEED = 3_001, 6, 0.2, 3
OPTIONS = Autoencoder(epochs=3, noise=0, smallest_batch=50, largest_batch=50)
EARLY_END = 15
"""Calls of the trainer's steps, here of five each: in the middle of the second epoch."""


class EndedError(Exception):
    """The training ends here, as if it were killed."""


def everything() -> Features:
    """Return the rows of all ranks."""
    generator = np.random.default_rng(1)
    return (generator.standard_normal((ROWS, 2)) @ generator.standard_normal((2, WIDTH))).astype(np.float32)


def in_memory(_: Path) -> Feed:
    """Deal the rows out."""
    own = everything()[distributed.rank() :: distributed.size()]
    return hold_in_memory(own, SHARE, SEED)


def streamed(folder: Path) -> Feed:
    """Write the rows into blocks of 8."""
    rank, size = distributed.rank(), distributed.size()
    layout = Layout(rows=ROWS, width=WIDTH, validation_share=SHARE, seed=SEED, bytes_per_block=4 * WIDTH * 8)
    writer = BlockWriter(folder / f"scratch-{rank}-of-{size}", layout, layout.own_blocks(rank, size))
    first, last = layout.own_rows(rank, size)
    writer.write(iter([everything()[first:last]]))
    training, validation = distributed.gather(writer.training), distributed.gather(writer.validation)
    return StreamedFeed(
        folder / f"scratch-{rank}-of-{size}",
        layout,
        training=training,
        validation=validation,
        rank=rank,
        size=size,
    )


FORMS: dict[str, Callable[[Path], Feed]] = {"memory": in_memory, "disk": streamed}


def keeper_of(folder: Path, name: str) -> Keeper:
    """Keep a checkpoint after every call of steps."""
    place = Place.at(folder / "checkpoints" / name)
    return Keeper(Checkpoints(place=place, request_id="r", fits="f"), every_seconds=0.0)


def weights(fitted: Fitted) -> list[Any]:
    """Return the weights of the network that was fitted."""
    return [np.asarray(value) for value in fitted.model.get_weights()]  # type: ignore[attr-defined] # a Keras model


def start_and_end(feed: Feed, keeper: Keeper) -> None:
    """Train until the trainer's calls are used up."""
    check, calls = fit_module._require_finite_losses, iter(range(EARLY_END))  # noqa: SLF001 - after each call of steps

    def counted(ran: Ran, chunk: Chunk, epoch: int) -> None:
        if next(calls, None) is None:
            raise EndedError
        check(ran, chunk, epoch)

    with patch.object(fit_module, "_require_finite_losses", counted):
        try:
            fit(OPTIONS, feed, SEED, keeper)
        except EndedError:
            return
    raise AssertionError("the training was not ended")


def main(folder: Path, stage: str) -> None:
    """Go through one stage in both forms and write down the weights."""
    distributed.start()
    rank, size = distributed.rank(), distributed.size()
    observed: dict[str, Any] = {}
    for form, feed_of in FORMS.items():
        feed = feed_of(folder)
        with patch.object(fit_module, "STEPS_PER_CALL", 5):
            if stage == "first":
                whole = fit(OPTIONS, feed, SEED)
                start_and_end(feed, keeper_of(folder, f"{form}-{size}"))
                np.savez(folder / f"whole-{form}-{rank}-of-{size}.npz", *weights(whole))
                plain = fit(dataclasses.replace(OPTIONS, optimizer="sgd", learning_rate=0.05), feed, SEED)
                np.savez(folder / f"sgd-{form}-{rank}-of-{size}.npz", *weights(plain))
                observed[form] = whole.loss
                continue
            for began in (1, 2):  # with so many ranks
                if size == 1 and began == 1:
                    continue  # as with two, and quicker
                keeper = keeper_of(folder, f"{form}-{began}-for-{size}")
                resumed = fit(OPTIONS, feed, SEED, keeper)
                np.savez(folder / f"resumed-{form}-{began}-{rank}-of-{size}.npz", *weights(resumed))
                observed[f"{form}-{began}"] = resumed.loss
    (folder / f"{stage}-{rank}-of-{size}.json").write_text(json.dumps(observed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
