"""A transformer autoencoder of sequences: attention over the rows of a window, through a narrow code per row.

The encoder layer of Vaswani et al. 2017, "Attention is all you need", with normalisation first (Xiong et al.
2020, "On layer normalization in the transformer architecture") and learned positions.
"""

from typing import Any, Self

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from training.detectors.options import STRICT, Noise, Positive
from training.detectors.sequence_autoencoder import SequenceNetwork, SequenceOptions


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class TransformerAutoencoder(SequenceOptions):
    """Options. `units` is what a row becomes, in `heads` heads; `layers` lie on either side of the code.

    `code` numbers of a row go through the middle, fewer than a row has features, or else it would be copied.
    `noise` hides the row itself, so that it has to be read from its neighbours.
    """

    noise: Noise = 0.3
    units: Positive = 32
    heads: Positive = 4
    layers: Positive = 1
    code: Positive = 4

    @model_validator(mode="after")
    def _heads_share_the_units(self) -> Self:
        if self.units % self.heads:
            raise ValueError(f"units {self.units} must be a multiple of heads {self.heads}")
        return self

    def build(self, width: int) -> SequenceNetwork:
        """Build the network for `width` features."""
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        features = keras.Input((self.length, width), name="features")
        hidden = self._attended(self._placed(features))
        code = keras.layers.Dense(min(self.code, width))(hidden)
        hidden = self._attended(self._placed(code))
        return SequenceNetwork(keras.Model(features, keras.layers.Dense(width)(hidden)), self.noise)

    def _placed(self, rows: Any) -> Any:  # noqa: ANN401 - tensors
        """Make units of each row, with a bias of its own for each place in the window: learned positions."""
        import keras  # noqa: PLC0415 - as above

        shape = (self.length, self.units)
        return keras.layers.EinsumDense(
            "ntf,fu->ntu", shape, bias_axes="tu", bias_initializer="random_normal"
        )(rows)

    def _attended(self, rows: Any) -> Any:  # noqa: ANN401 - tensors
        """Let each row read the others, `layers` times."""
        import keras  # noqa: PLC0415 - as above

        for _ in range(self.layers):
            normal = keras.layers.LayerNormalization()(rows)
            attention = keras.layers.MultiHeadAttention(self.heads, self.units // self.heads)
            rows = keras.layers.Add()([rows, attention(normal, normal)])
            normal = keras.layers.LayerNormalization()(rows)
            wide = keras.layers.Dense(2 * self.units, "relu")(normal)
            rows = keras.layers.Add()([rows, keras.layers.Dense(self.units)(wide)])
        return rows
