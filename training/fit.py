"""The fit loop, the same for one rank and for many, for rows in memory and on disk.

What one step does is in `training.steps`, and which rows it takes in `training.feed`; here is the course of
the epochs: what is compared over the ranks, what is kept of the progress, and when to stop.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import keras
import numpy as np

from training import distributed
from training.checkpoint import Progress
from training.detectors import AnyDetector, Detector, DirectDetector, Network, ScoringModel
from training.errors import TrainingFailedError
from training.feed import Chunk, Feed
from training.keeper import Keeper
from training.steps import NONE, Ran, make_trainer, make_validator
from training.types import EpochFigures

STEPS_PER_CALL = 2_000
"""At most, so that a loss that is not finite stops a long epoch early, and a checkpoint is not far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted detector: `model` maps features to scores, `loss` is the best mean validation loss.

    Of a detector that is fitted directly, `epochs` is 1 and `loss` the mean score of the training rows; there
    are no `figures` of epochs.
    """

    model: ScoringModel
    rows: int
    epochs: int
    loss: float
    figures: tuple[EpochFigures, ...] = ()


def fit(
    detector: AnyDetector,
    feed: Feed,
    seed: int,
    keeper: Keeper | None = None,
    *,
    anomaly_weight: float = 0.0,
) -> Fitted:
    """Fit on the rows of all ranks.

    Args:
        detector: The validated options.
        feed: This rank's rows.
        seed: Decides the first weights and the noise.
        keeper: Keeps checkpoints; the training goes on from the newest. None keeps nothing.
        anomaly_weight: Of the known anomalies in the feed.

    Raises:
        TrainingFailedError: A loss that is not finite, or ranks out of step; raised on every rank.
        RetryableError: A checkpoint cannot be written or read.
    """
    if isinstance(detector, DirectDetector):
        return _fit_directly(detector, feed, seed)
    keras.utils.set_random_seed(seed)
    network = _build(detector, feed.width, detector.precision)
    batch_rows = detector.batch_rows(feed.training_rows)
    steps = feed.steps(batch_rows)
    trainer = make_trainer(detector, network, steps, batch_rows, seed, anomaly_weight)
    validate = make_validator(network, seed)
    keeper = keeper or Keeper()
    progress, best = keeper.resume(trainer.state)

    while progress.epoch <= detector.epochs and _improving(detector, progress):
        started, done, exchange_s = time.monotonic(), progress.step, 0.0
        for chunk in feed.chunks(progress.epoch, batch_rows, progress.step):
            for first, last in _calls(chunk, progress, trainer.local_steps):
                ran = trainer.run(chunk, progress.epoch, first, last)
                _require_finite_losses(ran, chunk, progress.epoch)
                loss_sum, due = distributed.total(np.array([ran.loss, keeper.due()], dtype=np.float64))
                progress = replace(
                    progress, step=chunk.first_step + last, loss_sum=progress.loss_sum + float(loss_sum)
                )
                exchange_s += ran.exchange_s
                if progress.epoch == progress.step == 1:
                    distributed.assert_equal_weights(network.weights, "after the first step")
                if due:
                    distributed.assert_equal_weights(network.weights, "before a checkpoint")
                    keeper.keep(trainer.state, progress, best)
                    _report(epoch=progress.epoch, step=progress.step, checkpoint=True)
        distributed.assert_equal_weights(network.weights, f"after epoch {progress.epoch}")
        loss = progress.loss_sum / feed.training_rows
        validation_loss = _mean_over_ranks(validate(feed.validation()), feed, progress.epoch)
        rate = feed.training_rows * (steps - done) / steps / (time.monotonic() - started)
        if validation_loss < progress.best_loss:
            best = [np.array(weight) for weight in network.weights]
            progress = replace(progress, best_epoch=progress.epoch, best_loss=validation_loss)
        figures = EpochFigures(loss=loss, validation_loss=validation_loss, rows_per_second=rate)
        progress = replace(
            progress,
            epoch=progress.epoch + 1,
            step=0,
            loss_sum=0.0,
            figures=(*progress.figures, figures),
        )
        kept = keeper.keep(trainer.state, progress, best)
        _report(
            epoch=progress.epoch - 1,
            **asdict(figures),
            steps=steps,
            allreduce_seconds=exchange_s,
            checkpoint=kept,
        )

    for weight, value in zip(network.weights, best, strict=True):
        weight.assign(value)
    distributed.assert_equal_weights(network.weights, "at the end")
    model = _in_float32(detector, network, feed.width).scoring_model(feed.parts, distributed.total)
    return Fitted(
        model=model,
        rows=feed.rows,
        epochs=progress.epoch - 1,
        loss=progress.best_loss,
        figures=progress.figures,
    )


def _fit_directly(detector: DirectDetector, feed: Feed, seed: int) -> Fitted:
    model = detector.fit_directly(feed.parts, seed, distributed)
    own = sum(float(np.sum(model(rows), dtype=np.float64)) for rows in feed.parts())
    loss = float(distributed.total(np.array(own))) / feed.rows
    _require_finite(loss, epoch=1)
    return Fitted(model=model, rows=feed.rows, epochs=1, loss=loss)


def _improving(detector: Detector, progress: Progress) -> bool:
    """Whether the last epochs are not too many without a lower validation loss."""
    return progress.epoch - 1 - progress.best_epoch < detector.patience


def _calls(chunk: Chunk, progress: Progress, local_steps: int) -> Iterator[tuple[int, int]]:
    """Yield the steps of a chunk that are still to do, from `first` to before `last` of one call.

    Calls end where the ranks exchange anyway, so that a resumed training's calls are the same. The very first
    step is a call of its own.
    """
    first = max(0, progress.step - chunk.first_step)
    if progress.epoch == 1 and progress.step == 0 and chunk.steps:
        yield 0, 1
        first = 1
    length = local_steps * math.ceil(STEPS_PER_CALL / local_steps)
    while first < chunk.steps:
        last = min((first // length + 1) * length, chunk.steps)
        yield first, last
        first = last


def _build(detector: Detector, width: int, precision: str) -> Network:
    """Build the network with layers that compute in `precision`, a policy of Keras."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        return detector.build(width)
    finally:
        keras.config.set_dtype_policy(before)


def _in_float32(detector: Detector, network: Network, width: int) -> Network:
    """Return a network of the same weights that computes in float32."""
    if detector.precision == "float32":
        return network
    exact = _build(detector, width, "float32")
    for weight, trained in zip(exact.weights, network.weights, strict=True):
        weight.assign(trained)
    return exact


def _require_finite_losses(ran: Ran, chunk: Chunk, epoch: int) -> None:
    """Stop all ranks where a loss of any is not finite, and name the ranks that came first."""
    firsts = distributed.gather(np.array([ran.not_finite]))
    first = firsts.min()
    if first != NONE:
        ranks = ", ".join(str(rank) for rank in np.flatnonzero(firsts == first))
        raise TrainingFailedError(
            f"a loss of step {chunk.first_step + first + 1} of epoch {epoch} is not finite on rank {ranks}",
            hint="The training diverged and all ranks stopped; lower the detector's `learning_rate`.",
        )


def _mean_over_ranks(own_sum: float, feed: Feed, epoch: int) -> float:
    """Return the mean over the validation rows of all ranks: sums are added, never means."""
    mean = float(distributed.total(np.array(own_sum))) / feed.validation_rows
    _require_finite(mean, epoch)
    return mean


def _require_finite(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise TrainingFailedError(
            f"the loss of epoch {epoch} is {loss}",
            hint="The training diverged and all ranks stopped; lower the detector's `learning_rate`.",
        )


def _report(**figures: Any) -> None:  # noqa: ANN401 - whatever JSON takes
    if distributed.rank() == 0:
        print(json.dumps(figures), flush=True)  # noqa: T201 - the launcher forwards it to the log
