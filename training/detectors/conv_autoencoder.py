"""A convolutional autoencoder of sequences, for repeating shapes: strided convolutions in time, and back.

After the SKAB benchmark's Conv-AE (Katser and Kozitsin 2020, "Skoltech anomaly benchmark").
"""

from itertools import pairwise
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from training.detectors.options import STRICT, Positive
from training.detectors.sequence_autoencoder import SequenceNetwork, SequenceOptions

STRIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class ConvAutoencoder(SequenceOptions):
    """Options. `filters` of the first layer, half as many in the second; each layer halves the length."""

    filters: Annotated[int, Field(ge=2)] = 32
    kernel: Positive = 7

    def build(self, width: int) -> SequenceNetwork:
        """Build the network for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        features = hidden = keras.Input((self.length, width), name="features")
        lengths = [self.length]
        for filters in (self.filters, self.filters // 2):
            hidden = keras.layers.Conv1D(filters, self.kernel, STRIDE, "same", activation="relu")(hidden)
            lengths.append(hidden.shape[1])
        for filters, (shorter, longer) in zip(
            (self.filters // 2, self.filters), pairwise(reversed(lengths)), strict=True
        ):
            widened = keras.layers.Conv1DTranspose(filters, self.kernel, STRIDE, "same", activation="relu")
            hidden = keras.layers.Cropping1D((0, STRIDE * shorter - longer))(widened(hidden))
        rebuilt = keras.layers.Conv1D(width, self.kernel, padding="same")(hidden)
        return SequenceNetwork(keras.Model(features, rebuilt), self.noise)
