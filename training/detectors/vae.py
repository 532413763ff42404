"""A variational autoencoder (Kingma and Welling 2014, "Auto-encoding variational Bayes")."""

from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from training.detectors import Detector, Parts, Total
from training.detectors.options import STRICT, Noise, Positive
from training.detectors.score_parts import summed_over_means


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Vae(Detector):
    """Options. `code` and `hidden` are widths of layers; `code` is never wider than the features.

    `beta` weighs the divergence against the squared error, both per feature (Higgins et al. 2017,
    "beta-VAE"). `noise` is that of a denoising autoencoder, added to the features in training.
    """

    hidden: Positive = 128
    code: Positive = 32
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    noise: Noise = 0.0

    def build(self, width: int) -> "VaeNetwork":
        """Build the network for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        code = min(self.code, width)
        features = keras.Input((width,), name="features")
        hidden = keras.layers.Dense(self.hidden, "relu")(features)
        mean = keras.layers.Dense(code)(hidden)
        # Logarithms of variances within +-10, smoothly: an exponential of more overflows early in training.
        log_variance = 10 * keras.layers.Dense(code, "tanh", kernel_initializer="zeros")(hidden)
        point = keras.Input((code,), name="code")
        rebuilt = keras.layers.Dense(width, dtype="float32")(keras.layers.Dense(self.hidden, "relu")(point))
        encoder = keras.Model(features, [mean, log_variance])
        return VaeNetwork(encoder, keras.Model(point, rebuilt), self)


class VaeNetwork:
    """Encoder and decoder."""

    def __init__(self, encoder: Any, decoder: Any, options: Vae) -> None:  # noqa: ANN401 - Keras models
        self.encoder = encoder
        self.decoder = decoder
        self.options = options
        self.weights = [*encoder.trainable_variables, *decoder.trainable_variables]

    def losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        """Return each row's negative evidence bound per feature, up to constants, from one drawn code."""
        import tensorflow as tf  # noqa: PLC0415 - as above

        noise = self.options.noise * tf.random.stateless_normal(tf.shape(batch), seed)
        mean, log_variance = self.encoder(batch + noise)
        drawn = tf.random.stateless_normal(tf.shape(mean), seed + 1)
        rebuilt = self.decoder(mean + tf.exp(log_variance / 2) * drawn)
        error = tf.reduce_mean(tf.square(rebuilt - batch), axis=1)
        return error + self.options.beta * _divergence(mean, log_variance) / batch.shape[1]

    validation_losses = losses

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - a Keras model
        """Return the score: squared error from the mean code plus divergence, each over its own mean."""
        import keras  # noqa: PLC0415 - as above

        inputs = self.encoder.inputs[0]
        mean, log_variance = self.encoder(inputs)
        error = keras.ops.mean(keras.ops.square(inputs - self.decoder(mean)), axis=1)
        return summed_over_means(inputs, [error, _divergence(mean, log_variance)], parts, total)


def _divergence(mean: Any, log_variance: Any) -> Any:  # noqa: ANN401 - tensors
    """Return each row's Kullback-Leibler divergence from the standard normal distribution, in nats."""
    import keras  # noqa: PLC0415 - as above

    terms = keras.ops.square(mean) + keras.ops.exp(log_variance) - 1 - log_variance
    return keras.ops.sum(terms, axis=1) / 2
