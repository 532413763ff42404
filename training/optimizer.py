"""Adam and gradient descent, each by TensorFlow's own fused kernel for a variable.

Keras composes Adam of a dozen small operations a variable, which take longer than this whole update where the
network is small. The formulas are the same.
"""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-7
"""Those of Keras."""


class Optimizer:
    """Changes the Keras variables `weights` along their gradients.

    Attributes:
        taken: Keras variable, int64: the steps so far, which another thread may read while they are taken.
        moments: Keras variables: Adam's first moments, then its second ones, in the order of the weights.
    """

    def __init__(self, name: Literal["adam", "sgd"], weights: Sequence[Any]) -> None:
        self._weights = weights
        with tf.device("cpu"):
            self.taken = keras.Variable(0, dtype="int64", trainable=False, name="taken")
        kept = 2 if name == "adam" else 0
        self.moments = [
            keras.Variable(tf.zeros(weight.shape), dtype="float32", trainable=False, name="moments")
            for _ in range(kept)
            for weight in weights
        ]

    def apply(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        """Take a step of learning rate `rate` along one gradient per weight; usable inside a tf.function."""
        self.taken.value.assign_add(1)
        if self.moments:
            self._apply_adam(gradients, rate)
            return
        for weight, gradient in zip(self._weights, gradients, strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(var=weight.value.handle, alpha=rate, delta=gradient)

    def _apply_adam(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        taken = tf.cast(self.taken.value, tf.float32)
        first, second = self.moments[: len(gradients)], self.moments[len(gradients) :]
        powers = {"beta1_power": tf.pow(FIRST_DECAY, taken), "beta2_power": tf.pow(SECOND_DECAY, taken)}
        for weight, mean, square, gradient in zip(self._weights, first, second, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.value.handle,
                m=mean.value.handle,
                v=square.value.handle,
                lr=rate,
                beta1=FIRST_DECAY,
                beta2=SECOND_DECAY,
                epsilon=EPSILON,
                grad=gradient,
                **powers,
            )
