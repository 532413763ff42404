"""The steps of an epoch, compiled into one call.

Every rank has the same number of steps, and in each the rows of all ranks that `training.feed` gives it. The
gradient of a step is the sum over all ranks' rows divided by their number, so a rank's part weighs what it
should, however large it is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training import distributed, heartbeat
from training.detectors import Detector, Features, Network
from training.feed import Chunk
from training.supervision import supervised


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Runs steps on a network.

    Attributes:
        run: Takes a chunk, the epoch, and the chunk's steps from `first` to before `last`; returns the sum of
            this rank's losses.
        state: All Keras variables that the next step depends on: first the network's weights, then the
            optimizer's, of which one counts the steps and so decides the learning rate.
    """

    run: Callable[[Chunk, int, int, int], float]
    state: Sequence[Any]


def make_trainer(
    detector: Detector, network: Network, steps: int, seed: int, anomaly_weight: float = 0.0
) -> Trainer:
    """Return the trainer of `network` in epochs of `steps` steps; `seed` decides the noise.

    `anomaly_weight` is for `training.supervision.supervised`; without any, known anomalies count as rows.
    """
    schedule = keras.optimizers.schedules.CosineDecay(detector.learning_rate, steps * detector.epochs)
    optimizer = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}[detector.optimizer](schedule)
    optimizer.build(network.weights)
    noise = tf.constant(seed * distributed.size() + distributed.rank(), tf.int64)

    def run(  # noqa: PLR0913, PLR0917 - a chunk, whose arrays are tensors here, and which of its steps
        rows: tf.Tensor,
        order: tf.Tensor,
        bounds: tf.Tensor,
        known_from: tf.Tensor,
        start: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
    ) -> tf.Tensor:
        summed, unexchanged = tf.zeros((), tf.float64), tf.zeros(())
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
            count = tf.cast(tf.shape(batch)[0], tf.float32)
            unexchanged += count
            if detector.local_steps == 1:
                *gradients, count = distributed.sum_over_ranks([*gradients, count])
            # A step without a row has zero gradients.
            optimizer.apply([gradient / tf.maximum(count, 1.0) for gradient in gradients], network.weights)
            if detector.local_steps > 1 and ((step + 1) % detector.local_steps == 0 or step + 1 == last):
                distributed.average_weights(network.weights, unexchanged)
                unexchanged = tf.zeros(())
            summed += tf.cast(loss, tf.float64)
        return summed

    # Horovod's exchanges have no XLA kernel; one call for many steps, because a call costs more than a step.
    compiled = tf.function(run, jit_compile=False, reduce_retracing=True)
    held: list[Any] = [None, None]  # the rows of the last call, and the same as a tensor

    def run_chunk(chunk: Chunk, epoch: int, first: int, last: int) -> float:
        if held[0] is not chunk.rows:
            held[:] = None, None  # before the next are copied
            held[:] = chunk.rows, tf.constant(chunk.rows)
        known_from = len(chunk.rows) if chunk.known_from is None else chunk.known_from
        numbers = (chunk.order, chunk.bounds, known_from, epoch * steps + chunk.first_step, first, last)
        with heartbeat.steps(lambda: int(optimizer.iterations.value.numpy())):
            return float(compiled(held[1], *(tf.constant(value, tf.int64) for value in numbers)))

    return Trainer(run=run_chunk, state=[*network.weights, *optimizer.variables])


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
