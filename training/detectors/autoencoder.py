"""A dense denoising autoencoder: rows that it cannot rebuild, or that lie far out, are anomalous."""

from typing import Any

from pydantic.dataclasses import dataclass

from training.detectors import Detector, Parts, Total
from training.detectors.options import STRICT, Noise, Positive
from training.detectors.score_parts import summed_over_means


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Autoencoder(Detector):
    """Options. `code` and `hidden` are widths of layers; `code` is never wider than the features.

    `noise` is the standard deviation of the Gaussian noise that training adds to the standardised features
    (Vincent et al. 2008, "Extracting and composing robust features with denoising autoencoders").
    """

    hidden: Positive = 128
    code: Positive = 64
    noise: Noise = 0.6

    def build(self, width: int) -> "AutoencoderNetwork":
        """Build the network for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        features = keras.Input((width,), name="features")
        hidden = keras.layers.Dense(self.hidden, "relu")(features)
        code = keras.layers.Dense(min(self.code, width))(hidden)
        hidden = keras.layers.Dense(self.hidden, "relu")(code)
        return AutoencoderNetwork(
            keras.Model(features, keras.layers.Dense(width, dtype="float32")(hidden)), self.noise
        )


class AutoencoderNetwork:
    """A network that rebuilds what it is shown, and the noise that it learns with."""

    def __init__(self, model: Any, noise: float) -> None:  # noqa: ANN401 - a Keras model
        self.model = model
        self.noise = noise
        self.weights = model.trainable_variables

    def losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        """Return the mean squared error of each row or window, rebuilt from its noisy self."""
        import tensorflow as tf  # noqa: PLC0415 - as above

        noise = self.noise * tf.random.stateless_normal(tf.shape(batch), seed) if self.noise else 0.0
        return tf.reduce_mean(tf.square(self.model(batch + noise) - batch), axis=range(1, batch.shape.rank))

    validation_losses = losses

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - a Keras model
        """Return the score: squared error plus squared distance from the centre, each over its own mean.

        The second term keeps far-out rows anomalous that the network happens to rebuild well.
        """
        import keras  # noqa: PLC0415 - as above

        inputs = self.model.inputs[0]
        error = keras.ops.mean(keras.ops.square(inputs - self.model(inputs)), axis=1)
        distance = keras.ops.mean(keras.ops.square(inputs), axis=1)
        return summed_over_means(inputs, [error, distance], parts, total)
