"""The steps of an epoch, compiled into one call.

Every rank has the same number of steps, and in each the rows of all ranks that `training.feed` gives it. The
gradient of a step is the sum over all ranks' rows divided by their number, so a rank's part weighs what it
should, however large it is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from training import distributed, heartbeat
from training.detectors import Detector, Features, Network
from training.errors import TrainingFailedError
from training.feed import Chunk
from training.optimizer import Optimizer
from training.supervision import supervised

NONE = np.iinfo(np.int64).max
TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a call of steps tells of this rank.

    Attributes:
        loss: The sum of its rows' losses.
        exchange_s: Seconds in exchanges, waiting for the other ranks included.
        not_finite: The first step of the chunk with a loss that is not finite; `NONE` without one.
    """

    loss: float
    exchange_s: float
    not_finite: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Runs steps on a network.

    Attributes:
        run: Takes a chunk, the epoch, and the chunk's steps from `first` to before `last`, after which all
            ranks hold the same.
        local_steps: Steps between two exchanges.
        state: All Keras variables that the next step depends on: first the network's weights, then the
            optimizer's.
    """

    run: Callable[[Chunk, int, int, int], Ran]
    local_steps: int
    state: Sequence[Any]


def make_trainer(  # noqa: PLR0913, PLR0917 - what the steps are made of
    detector: Detector,
    network: Network,
    steps: int,
    batch_rows: int,
    seed: int,
    anomaly_weight: float = 0.0,
) -> Trainer:
    """Return the trainer of `network`, whose `run` raises TrainingFailedError where its losses are unfit.

    Args:
        detector: The validated options.
        network: What the detector has built.
        steps: Those of an epoch.
        batch_rows: Rows of a step over all ranks, at most.
        seed: Decides the noise.
        anomaly_weight: For `training.supervision.supervised`; without any, known anomalies count as rows.
    """
    optimizer = Optimizer(detector.optimizer, network.weights)
    wrong: list[str] = []

    noise = tf.constant(seed * distributed.size() + distributed.rank(), tf.int64)
    local_steps = detector.steps_between_exchanges(steps) if distributed.size() > 1 else 1

    def run(  # noqa: PLR0913, PLR0917 - a chunk, whose arrays are tensors here, and which of its steps
        rows: tf.Tensor,
        order: tf.Tensor,
        bounds: tf.Tensor,
        known_from: tf.Tensor,
        start: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        rates: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        summed, seconds, not_finite = tf.zeros((), tf.float64), tf.zeros((), tf.float64), tf.constant(NONE)
        common, unexchanged = [tf.identity(weight.value) for weight in network.weights], tf.zeros(())
        for step in tf.range(first, last):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            places = order[bounds[step] : bounds[step + 1]]
            batch = _batch(rows, places, detector.window_rows)
            with tf.GradientTape() as tape:
                losses = network.losses(batch, tf.stack([noise, start + step]))
                if anomaly_weight:
                    losses = supervised(losses, places >= known_from, anomaly_weight)
                loss = tf.reduce_sum(losses)
            gradients = tape.gradient(loss, [weight.value for weight in network.weights])
            gradients = _dense(gradients, network.weights, losses, wrong)
            # In parts of a whole batch, sums of gradients are about means: what float16 can hold.
            share = tf.cast(tf.shape(places)[0], tf.float32) / batch_rows
            gradients = [gradient / batch_rows for gradient in gradients]
            gradients, taken_s = _mean(gradients, share, detector, together=local_steps == 1)
            optimizer.apply(gradients, rates[step - first])
            seconds, unexchanged = seconds + taken_s, unexchanged + share / local_steps
            if local_steps > 1 and ((step + 1) % local_steps == 0 or step + 1 == last):
                common, taken_s = _average_changes(network.weights, common, unexchanged, detector.exchange)
                seconds, unexchanged = seconds + taken_s, tf.zeros(())
            summed += tf.cast(loss, tf.float64)
            not_finite = tf.where(tf.math.is_finite(loss), not_finite, tf.minimum(not_finite, step))
        if local_steps > 1:
            seconds += _average_moments(optimizer)
        return summed, seconds, not_finite

    # Horovod's exchanges have no XLA kernel; one call for many steps, because a call costs more than a step.
    compiled = tf.function(run, jit_compile=False, reduce_retracing=True)
    held: list[Any] = [None, None]  # the rows of the last call, and the same as a tensor

    def run_chunk(chunk: Chunk, epoch: int, first: int, last: int) -> Ran:
        if held[0] is not chunk.rows:
            held[:] = None, None  # before the next are copied
            held[:] = chunk.rows, tf.constant(chunk.rows)
        known_from = len(chunk.rows) if chunk.known_from is None else chunk.known_from
        done = (epoch - 1) * steps + chunk.first_step
        rates = detector.learning_rates(done + first, done + last, steps, batch_rows)
        numbers = (chunk.order, chunk.bounds, known_from, epoch * steps + chunk.first_step, first, last)
        tensors = [tf.constant(value, tf.int64) for value in numbers]
        with heartbeat.steps(lambda: int(optimizer.taken.value.numpy())):
            loss, seconds, not_finite = compiled(held[1], *tensors, tf.constant(rates))
            told = Ran(loss=float(loss), exchange_s=float(seconds), not_finite=int(not_finite))
        if wrong:
            raise TrainingFailedError(wrong[0], hint="No model was written.")
        return told

    return Trainer(
        run=run_chunk,
        local_steps=local_steps,
        state=[*network.weights, optimizer.taken, *optimizer.moments],
    )


def _dense(
    gradients: Sequence[Any], weights: Sequence[Any], losses: tf.Tensor, wrong: list[str]
) -> list[tf.Tensor]:
    """Return gradients as tensors, zeros where there is none.

    What is wrong with the network goes into `wrong`: an error of ours would not leave TensorFlow's tracing.
    """
    if losses.dtype != tf.float32:
        wrong.append(f"the detector's losses are {losses.dtype.name}; they must be float32")
    dense = []
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is None:
            wrong.append(f"the detector's losses do not depend on its weight {weight.path}")
        # Those of embeddings come as slices, of which each rank has other ones.
        given = tf.zeros(weight.shape) if gradient is None else tf.convert_to_tensor(gradient)
        dense.append(tf.ensure_shape(given, weight.shape))  # some gradients do not know theirs
    return dense


def _mean(
    gradients: list[tf.Tensor], share: tf.Tensor, detector: Detector, *, together: bool
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the mean gradient over the rows of all ranks, or of this one, clipped as the detector says.

    Args:
        gradients: Sums over this rank's rows, over the rows of a batch.
        share: This rank's rows over those of a batch; a step without a row has zero gradients.
        detector: The options.
        together: Whether over the rows of all ranks.
    """
    seconds = tf.zeros((), tf.float64)
    if detector.clip_norm is not None and detector.clipping == "before_averaging":
        gradients, _ = tf.clip_by_global_norm(gradients, detector.clip_norm * share)
    if together:
        (*gradients, share), seconds = _exchange([*gradients, share], detector.exchange)
    gradients = [gradient / tf.maximum(share, TINY) for gradient in gradients]
    if detector.clip_norm is not None and detector.clipping == "after_averaging":
        gradients, _ = tf.clip_by_global_norm(gradients, detector.clip_norm)
    return gradients, seconds


def _average_changes(
    variables: Sequence[Any], since: list[tf.Tensor], share: tf.Tensor, kind: str
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Set variables to `since`, equal on all ranks, plus the mean change; each rank weighs its `share`."""
    share = tf.maximum(share, TINY)  # where no rank has seen a row, the mean is still one
    changes = [(variable.value - start) * share for variable, start in zip(variables, since, strict=True)]
    (*sums, everywhere), seconds = _exchange([*changes, share], kind)
    means = [start + change / tf.maximum(everywhere, TINY) for start, change in zip(since, sums, strict=True)]
    for variable, mean in zip(variables, means, strict=True):
        variable.assign(mean)
    return means, seconds


def _average_moments(optimizer: Optimizer) -> tf.Tensor:
    """Average them over the ranks, which then hold the same where a checkpoint may be written."""
    if not optimizer.moments:
        return tf.zeros((), tf.float64)
    nothing = [tf.zeros(moment.shape) for moment in optimizer.moments]
    _, seconds = _average_changes(optimizer.moments, nothing, tf.ones(()), "float32")  # too small for float16
    return seconds


def _exchange(tensors: Sequence[tf.Tensor], kind: str) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Add up tensors over the ranks; return the sums, and the seconds that it took."""
    if distributed.size() == 1:
        return list(tensors), tf.zeros((), tf.float64)
    with tf.control_dependencies(tensors):
        begun = tf.timestamp()
    with tf.control_dependencies([begun]):
        sums = distributed.sum_over_ranks([tf.identity(tensor) for tensor in tensors], kind)
    with tf.control_dependencies(sums):
        return sums, tf.timestamp() - begun


def _batch(rows: tf.Tensor, places: tf.Tensor, window_rows: int) -> tf.Tensor:
    """Return the rows at `places`, (places, width), or the windows that begin there (places, rows, width)."""
    if window_rows == 1:
        return tf.gather(rows, places)
    return tf.gather(rows, places[:, None] + tf.range(window_rows, dtype=tf.int64))


def make_validator(network: Network, seed: int) -> Callable[[Iterable[Features]], float]:
    """Return the function that sums the losses of this rank's validation rows, always with the same noise."""
    losses = tf.function(network.validation_losses, jit_compile=False, reduce_retracing=True)

    def validate(parts: Iterable[Features]) -> float:
        return float(
            sum(
                np.sum(losses(tf.constant(rows), tf.constant([seed, part], tf.int64)), dtype=np.float64)
                for part, rows in enumerate(parts)
            )
        )

    return validate
