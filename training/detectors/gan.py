"""An adversarially trained autoencoder: a discriminator learns to tell rows from what was rebuilt of them.

After Akcay et al. 2018, "GANomaly", and Zenati et al. 2018, "Adversarially learned anomaly detection": rows
that are not rebuilt, or whose discriminator features are not, are anomalous. The two sides play in one loss:
the gradient that reaches the autoencoder through the discriminator is reversed (Ganin and Lempitsky 2015,
"Unsupervised domain adaptation by backpropagation"), so one optimizer serves both.
"""

from typing import Any

from pydantic.dataclasses import dataclass

from training.detectors import Detector, Parts, Total
from training.detectors.options import STRICT, Noise, Positive, Real
from training.detectors.score_parts import summed_over_means


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Gan(Detector):
    """Options. `code`, `hidden` and `judged` are widths of layers, the last of the discriminator's features.

    `adversarial` weighs the discriminator's part of the loss against the squared error. `noise` is that of
    a denoising autoencoder, added to the features in training.
    """

    hidden: Positive = 128
    code: Positive = 64
    judged: Positive = 64
    adversarial: Real = 0.1
    noise: Noise = 0.6

    def build(self, width: int) -> "GanNetwork":
        """Build the networks for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        features = keras.Input((width,), name="features")
        hidden = keras.layers.Dense(self.hidden, "relu")(features)
        code = keras.layers.Dense(min(self.code, width))(hidden)
        rebuilt = keras.layers.Dense(width, dtype="float32")(keras.layers.Dense(self.hidden, "relu")(code))
        row = keras.Input((width,), name="row")
        # Smooth and bounded: rows far outside of what it has seen do not lead it to extremes.
        judged = keras.layers.Dense(self.judged, "tanh")(keras.layers.Dense(self.hidden, "tanh")(row))
        real = keras.layers.Dense(1)(judged)
        return GanNetwork(keras.Model(features, rebuilt), keras.Model(row, [judged, real]), self)


class GanNetwork:
    """Autoencoder and discriminator."""

    def __init__(self, autoencoder: Any, discriminator: Any, options: Gan) -> None:  # noqa: ANN401 - Keras models
        self.autoencoder = autoencoder
        self.discriminator = discriminator
        self.options = options
        self.weights = [*autoencoder.trainable_variables, *discriminator.trainable_variables]

    def losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        """Return each row's squared error plus what the discriminator takes it and its copy for."""
        import tensorflow as tf  # noqa: PLC0415 - as above

        rebuilt = self._rebuilt(batch, seed)
        _, real = self.discriminator(batch)
        _, copied = self.discriminator(_reverse_gradient(rebuilt))
        judged = tf.nn.softplus(-real) + tf.nn.softplus(copied)
        error = tf.reduce_mean(tf.square(rebuilt - batch), axis=1)
        return error + self.options.adversarial * judged[:, 0]

    def validation_losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        """Return each row's squared error alone: the discriminator's loss says nothing of the copies."""
        import tensorflow as tf  # noqa: PLC0415 - as above

        return tf.reduce_mean(tf.square(self._rebuilt(batch, seed) - batch), axis=1)

    def _rebuilt(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        import tensorflow as tf  # noqa: PLC0415 - as above

        return self.autoencoder(
            batch + self.options.noise * tf.random.stateless_normal(tf.shape(batch), seed)
        )

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - a Keras model
        """Return the score: squared errors of a row and of its discriminator features, each over its mean."""
        import keras  # noqa: PLC0415 - as above

        inputs = self.autoencoder.inputs[0]
        rebuilt = self.autoencoder(inputs)
        (judged, _), (copied, _) = self.discriminator(inputs), self.discriminator(rebuilt)
        figures = [
            keras.ops.mean(keras.ops.square(true - copy), axis=1)
            for true, copy in ((inputs, rebuilt), (judged, copied))
        ]
        return summed_over_means(inputs, figures, parts, total)


def _reverse_gradient(tensor: Any) -> Any:  # noqa: ANN401 - tensors
    """Return `tensor` itself, through which gradients pass with the opposite sign."""
    import tensorflow as tf  # noqa: PLC0415 - as above

    return 2 * tf.stop_gradient(tensor) - tensor
