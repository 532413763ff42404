"""A dense denoising autoencoder: rows that it cannot rebuild, or that lie far out, are anomalous."""

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.detectors import Parts, Total

STEPS_PER_EPOCH = 40
"""Small data sets get smaller batches, so that an epoch has about so many steps."""

Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class Autoencoder:
    """Options. `code` and `hidden` are widths of layers; `code` is never wider than the features.

    `noise` is the standard deviation of the Gaussian noise that training adds to the standardised features
    (Vincent et al. 2008, "Extracting and composing robust features with denoising autoencoders").
    """

    hidden: Positive = 128
    code: Positive = 64
    noise: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.6
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-3
    epochs: Positive = 40
    patience: Positive = 10
    validation_share: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    smallest_batch: Positive = 32
    largest_batch: Positive = 512
    local_steps: Positive = 1

    def batch_rows(self, rows: int) -> int:
        """Return the power of two nearest to a fortieth of the rows, within bounds."""
        fitting = int(2 ** round(math.log2(max(1.0, rows / STEPS_PER_EPOCH))))
        return min(max(fitting, self.smallest_batch), self.largest_batch)

    def build(self, width: int) -> "AutoencoderNetwork":
        """Build the network for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        features = keras.Input((width,), name="features")
        hidden = keras.layers.Dense(self.hidden, "relu")(features)
        code = keras.layers.Dense(min(self.code, width))(hidden)
        hidden = keras.layers.Dense(self.hidden, "relu")(code)
        return AutoencoderNetwork(keras.Model(features, keras.layers.Dense(width)(hidden)), self.noise)


class AutoencoderNetwork:
    """The network and its noise."""

    def __init__(self, model: Any, noise: float) -> None:  # noqa: ANN401 - a Keras model
        self.model = model
        self.noise = noise
        self.weights = model.trainable_variables

    def losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        """Return the mean squared error of each row, rebuilt from its noisy self."""
        import tensorflow as tf  # noqa: PLC0415 - as above

        noise = self.noise * tf.random.stateless_normal(tf.shape(batch), seed) if self.noise else 0.0
        return tf.reduce_mean(tf.square(self.model(batch + noise) - batch), axis=1)

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - a Keras model
        """Return the score: squared error plus squared distance from the centre, each over its own mean.

        The second term keeps far-out rows anomalous that the network happens to rebuild well.
        """
        import keras  # noqa: PLC0415 - as above

        sums = np.zeros(3)
        for rows in parts():
            residuals = rows - np.asarray(self.model(rows))
            sums += [
                np.square(residuals, dtype=np.float64).sum(),
                np.square(rows, dtype=np.float64).sum(),
                rows.size,
            ]
        errors, distances, values = total(sums)
        inputs = self.model.inputs[0]
        error = keras.ops.mean(keras.ops.square(inputs - self.model(inputs)), axis=1)
        distance = keras.ops.mean(keras.ops.square(inputs), axis=1)
        tiny = 1e-12
        score = error / (errors / values + tiny) + distance / (distances / values + tiny)
        return keras.Model(inputs, score, name="score")
