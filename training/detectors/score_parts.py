"""A score made of several figures of a row that have no common unit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.detectors import Parts, Total

TINY = 1e-12


def summed_over_means(inputs: Any, figures: Sequence[Any], parts: Parts, total: Total) -> Any:  # noqa: ANN401 - Keras tensors and model
    """Return the Keras model whose score is the sum of `figures`, each over its mean over the training rows.

    Args:
        inputs: The symbolic features (rows, width).
        figures: Symbolic (rows,), made from them, not negative, higher being more anomalous.
        parts: Goes over this rank's training rows.
        total: Adds up over the ranks.
    """
    import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

    stacked = keras.Model(inputs, keras.ops.stack(figures, axis=1))
    sums = np.zeros(len(figures) + 1)
    for rows in parts():
        values = np.asarray(stacked(rows), dtype=np.float64)
        sums += [*values.sum(axis=0), len(rows)]
    *summed, rows_of_all = total(sums)
    relative = [one / (own / rows_of_all + TINY) for one, own in zip(figures, summed, strict=True)]
    return keras.Model(inputs, sum(relative[1:], relative[0]), name="score")
