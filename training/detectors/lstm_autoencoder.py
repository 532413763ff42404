"""A recurrent autoencoder of sequences: one code for a window, from which it is read back row by row.

Malhotra et al. 2016, "LSTM-based encoder-decoder for multi-sensor anomaly detection".
"""

from typing import Literal

from pydantic.dataclasses import dataclass

from training.detectors.options import STRICT, Positive
from training.detectors.sequence_autoencoder import SequenceNetwork, SequenceOptions


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class LstmAutoencoder(SequenceOptions):
    """Options. `units` of the encoder and the decoder, `code` of the one vector between them.

    `cell` is `lstm`, or `gru` (Cho et al. 2014), which has a quarter fewer weights.
    """

    cell: Literal["lstm", "gru"] = "lstm"
    units: Positive = 64
    code: Positive = 32

    def build(self, width: int) -> SequenceNetwork:
        """Build the network for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        layer = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[self.cell]
        # cuDNN's kernel has no ONNX counterpart; the plain loop becomes ONNX's own LSTM or GRU.
        encoder = layer(self.units, use_cudnn=False)
        decoder = layer(self.units, return_sequences=True, use_cudnn=False)
        features = keras.Input((self.length, width), name="features")
        code = keras.layers.Dense(self.code)(encoder(features))
        hidden = decoder(keras.layers.RepeatVector(self.length)(code))
        return SequenceNetwork(keras.Model(features, keras.layers.Dense(width)(hidden)), self.noise)
