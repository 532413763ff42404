"""What the autoencoders of sequences share: options, loss and score. Each of them adds its network."""

from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from training.detectors import Detector, Parts, Total
from training.detectors.autoencoder import AutoencoderNetwork
from training.detectors.options import STRICT, Noise, Real


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class SequenceOptions(Detector):
    """Options of every autoencoder of sequences; batches have windows.

    Attributes:
        length: Rows of a window.
        max_gap_seconds: The longest pause between two rows of one sequence. 0 learns it from the training
            rows: five times their median step.
        noise: Standard deviation of the Gaussian noise that training adds to the standardised features.
    """

    length: Annotated[int, Field(ge=4, le=1024)] = 32
    max_gap_seconds: Real = 0.0
    noise: Noise = 0.0

    @property
    def window_rows(self) -> int:
        """Rows of a window."""
        return self.length


class SequenceNetwork(AutoencoderNetwork):
    """A network that rebuilds windows (windows, length, width)."""

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - a Keras model
        """Return the score of each place: its squared error plus its window's, over the mean error.

        A single row that is off shows in the first term; a process that is off, by less than any single row
        shows, in the second.
        """
        import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

        sums = np.zeros(2)
        for windows in parts():
            residuals = windows - np.asarray(self.model(windows))
            sums += [np.square(residuals, dtype=np.float64).sum(), windows.size]
        summed, values = total(sums)
        inputs = self.model.inputs[0]
        errors = keras.ops.mean(keras.ops.square(inputs - self.model(inputs)), axis=2)
        score = (errors + keras.ops.mean(errors, axis=1, keepdims=True)) / (summed / values + 1e-12)
        return keras.Model(inputs, score, name="score")
