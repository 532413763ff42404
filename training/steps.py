"""The steps of an epoch, compiled into one call.

Every epoch has ceil(rows / batch) steps on every rank, and each rank deals its own rows into that many nearly
equal batches: no rank waits for another that has run out, and every row is seen exactly once. The gradient of
a step is the sum over all ranks' rows divided by their number, so uneven batches weigh what they should.
"""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from training import distributed
from training.detectors import Detector, Features, Network

ROWS_PER_CALL = 65_536


def make_trainer(
    detector: Detector, network: Network, features: Features, own: int, seed: int
) -> tuple[Callable[[np.ndarray, int, int, int], float], int]:
    """Return the function that runs some steps of an epoch, and the number of steps of an epoch.

    The function takes the positions of this rank's `own` training rows in the order of the epoch, the epoch,
    and the steps from `first` to before `last`; it returns the sum of this rank's losses.
    """
    everywhere = int(distributed.total(np.array(float(own))))
    steps = math.ceil(everywhere / detector.batch_rows(everywhere))
    schedule = keras.optimizers.schedules.CosineDecay(detector.learning_rate, steps * detector.epochs)
    optimizer = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}[detector.optimizer](schedule)
    optimizer.build(network.weights)
    rows = tf.constant(features)
    noise = tf.constant(seed * distributed.size() + distributed.rank(), tf.int64)

    def run(order: tf.Tensor, epoch: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        summed, unexchanged = tf.zeros((), tf.float64), tf.zeros(())
        for step in tf.range(first, last):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            batch = tf.gather(rows, order[own * step // steps : own * (step + 1) // steps])
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(network.losses(batch, tf.stack([noise, epoch * steps + step])))
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

    # Horovod's exchanges have no XLA kernel; one call for all steps, because a call costs more than a step.
    compiled = tf.function(run, jit_compile=False)

    def train(order: np.ndarray, epoch: int, first: int, last: int) -> float:
        return float(compiled(*(tf.constant(value, tf.int64) for value in (order, epoch, first, last))))

    return train, steps


def make_validator(network: Network, validation: Features, seed: int) -> Callable[[], float]:
    """Return the function that sums the losses of this rank's validation rows, always with the same noise."""
    losses = tf.function(network.losses, jit_compile=False, reduce_retracing=True)
    batches = [
        (tf.constant(validation[start : start + ROWS_PER_CALL]), tf.constant([seed, start], tf.int64))
        for start in range(0, len(validation), ROWS_PER_CALL)
    ]
    return lambda: sum(float(tf.reduce_sum(losses(batch, noise))) for batch, noise in batches)
