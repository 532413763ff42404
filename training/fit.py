"""The fit loop, the same for one rank and for many.

Every epoch has ceil(rows / batch) steps on every rank, and each rank deals its own rows into that many nearly
equal batches: no rank waits for another that has run out, and every row is seen exactly once. The gradient of
a step is the sum over all ranks' rows divided by their number, so uneven batches weigh what they should.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training import distributed
from training.detectors import Detector, Features, Network
from training.errors import TrainingFailedError

ROWS_PER_CALL = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted detector: `model` maps features to scores, `loss` is the best mean validation loss."""

    model: keras.Model
    rows: int
    epochs: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Best:
    epoch: int = 0
    loss: float = math.inf
    weights: Sequence[np.ndarray] = ()


def fit(detector: Detector, features: Features, seed: int) -> Fitted:
    """Fit on the rows of all ranks; row i of the whole is row i // size of rank i % size.

    Args:
        detector: The validated options.
        features: This rank's rows, (rows, width).
        seed: Decides the first weights, the validation rows, the order of the rows and the noise.

    Raises:
        TrainingFailedError: Too few rows, a feature or a loss that is not finite, or ranks out of step;
            raised on every rank.
    """
    distributed.fail_together(None if np.isfinite(features).all() else "a feature is not finite")
    rows = int(distributed.total(np.array(float(len(features)))))
    training, validation = _split(rows, detector.validation_share, seed)

    keras.utils.set_random_seed(seed)
    network = detector.build(features.shape[1])
    distributed.share_weights(network.weights)
    train, steps = _trainer(detector, network, features, len(training), seed)
    validate = _validator(network, features[validation], seed)

    best = _Best()
    for epoch in range(1, detector.epochs + 1):
        order = np.random.default_rng((seed, epoch, distributed.rank())).permutation(training)
        first = train(order, epoch, 0, 1)
        if epoch == 1:
            distributed.assert_equal_weights(network.weights, "after the first step")
        loss = _mean_over_ranks(first + train(order, epoch, 1, steps), len(training), epoch)
        validation_loss = _mean_over_ranks(validate(), len(validation), epoch)
        distributed.assert_equal_weights(network.weights, f"after epoch {epoch}")
        _report(epoch=epoch, loss=loss, validation_loss=validation_loss)
        if validation_loss < best.loss:
            weights = [weight.numpy() for weight in network.weights]
            best = _Best(epoch=epoch, loss=validation_loss, weights=weights)
        elif epoch - best.epoch >= detector.patience:
            break

    for weight, value in zip(network.weights, best.weights, strict=True):
        weight.assign(value)
    distributed.assert_equal_weights(network.weights, "at the end")
    model = network.scoring_model(features, distributed.total)
    return Fitted(model=model, rows=rows, epochs=epoch, loss=best.loss)


def _split(rows: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of this rank's training and validation rows.

    All ranks together hold out the same rows, whatever their number.
    """
    held_out = np.random.default_rng(seed).random(rows, dtype=np.float32) < share
    if not 0 < held_out.sum() < rows:
        raise TrainingFailedError(
            f"{rows} training rows are too few to hold out a share of {share} for validation",
            hint="Train on more windows.",
        )
    own = held_out[distributed.rank() :: distributed.size()]
    return np.flatnonzero(~own), np.flatnonzero(own)


def _trainer(
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


def _validator(network: Network, validation: Features, seed: int) -> Callable[[], float]:
    """Return the function that sums the losses of this rank's validation rows, always with the same noise."""
    losses = tf.function(network.losses, jit_compile=False, reduce_retracing=True)
    batches = [
        (tf.constant(validation[start : start + ROWS_PER_CALL]), tf.constant([seed, start], tf.int64))
        for start in range(0, len(validation), ROWS_PER_CALL)
    ]
    return lambda: sum(float(tf.reduce_sum(losses(batch, noise))) for batch, noise in batches)


def _mean_over_ranks(own_sum: float, own_rows: int, epoch: int) -> float:
    """Return the mean over the rows of all ranks: sums are added, never means."""
    summed, rows = distributed.total(np.array([own_sum, own_rows]))
    mean = float(summed / rows)
    if not math.isfinite(mean):
        raise TrainingFailedError(
            f"the loss of epoch {epoch} is {mean}",
            hint="The training diverged and all ranks stopped; lower the detector's `learning_rate`.",
        )
    return mean


def _report(**figures: Any) -> None:  # noqa: ANN401 - whatever JSON takes
    if distributed.rank() == 0:
        print(json.dumps(figures), flush=True)  # noqa: T201 - the launcher forwards it to the log
