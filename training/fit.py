"""The fit loop, the same for one rank and for many.

What one step does is in `training.steps`; here is the course of the epochs: who trains on which rows, what is
compared over the ranks, and when to stop.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from training import distributed
from training.detectors import Detector, Features
from training.errors import TrainingFailedError
from training.steps import make_trainer, make_validator


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
    train, steps = make_trainer(detector, network, features, len(training), seed)
    validate = make_validator(network, features[validation], seed)

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
