"""A score made of several figures of a row that have no common unit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.detectors import Parts, Total

TINY = 1e-12


def summed_over_means(inputs: Any, weighted: Sequence[tuple[float, Any]], parts: Parts, total: Total) -> Any:  # noqa: ANN401 - Keras tensors and model
    """Return the Keras model whose score is the weighted sum of figures, each over its mean in training rows.

    Args:
        inputs: The symbolic features (rows, width).
        weighted: Weights, and figures: symbolic (rows,), made from `inputs`, not negative, higher being more
            anomalous.
        parts: Goes over this rank's training rows.
        total: Adds up over the ranks.
    """
    import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

    weights, figures = zip(*weighted, strict=True)
    stacked = keras.Model(inputs, keras.ops.stack(figures, axis=1))
    sums = np.zeros(len(figures) + 1)
    for rows in parts():
        values = np.asarray(stacked(rows), dtype=np.float64)
        sums += [*values.sum(axis=0), len(rows)]
    *summed, rows_of_all = total(sums)
    shares = [weight / (own / rows_of_all + TINY) for weight, own in zip(weights, summed, strict=True)]
    relative = [figure * float(share) for share, figure in zip(shares, figures, strict=True)]
    return keras.Model(inputs, sum(relative[1:], relative[0]), name="score")
