"""Principal components: rows far out among them, or far away from the space that they span, are anomalous.

Hotelling's T² and the squared prediction error Q, as Jackson and Mudholkar 1979 combine them in "Control
procedures for residuals associated with principal component analysis", Technometrics 21.
"""

from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.detectors import Parts, Ranks

SMALLEST_VARIANCE = 1e-3
"""Of a standardised feature; below it, a direction or a residual is noise and not divided by."""


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class Pca:
    """Options. `variance` is the share of the variance that the components keep."""

    variance: Annotated[float, Field(gt=0, lt=1)] = 0.9
    validation_share: ClassVar[float] = 0.1
    window_rows: ClassVar[int] = 1

    def fit_directly(self, parts: Parts, seed: int, ranks: Ranks) -> Any:  # noqa: ANN401 - a Keras model
        """Fit to the covariance over all ranks, whose rows never leave them; nothing is drawn by `seed`."""
        del seed
        rows, mean, covariance = _moments(parts, ranks)
        values, vectors = np.linalg.eigh(covariance)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        explained = np.cumsum(values) / max(values.sum(), np.finfo(float).tiny)
        kept = int(np.searchsorted(explained, self.variance)) + 1
        kept = max(1, min(kept, int(np.sum(values > SMALLEST_VARIANCE)), rows))
        residual = max(SMALLEST_VARIANCE, float(values[kept:].sum()) / len(mean))
        return _scoring_model(mean, values[:kept], vectors[:, :kept], residual)


def _moments(parts: Parts, ranks: Ranks) -> tuple[int, np.ndarray, np.ndarray]:
    """Return number, mean and covariance of the rows of all ranks, the same to the bit on each."""
    sums: Any = 0.0
    for part in parts():
        values = part.astype(np.float64)
        counts = np.full(part.shape[1], float(len(part)))
        sums = sums + np.vstack([counts, values.sum(axis=0), values.T @ values])
    (rows, *_), first, *products = ranks.gather(sums[np.newaxis]).sum(axis=0)
    mean = first / rows
    return int(rows), mean, np.array(products) / rows - np.outer(mean, mean)


def _scoring_model(mean: np.ndarray, values: np.ndarray, vectors: np.ndarray, residual: float) -> Any:  # noqa: ANN401 - a Keras model
    """Return T² / components + Q / its mean; training rows have a mean of about two."""
    import keras  # noqa: PLC0415 - the control plane validates options without TensorFlow

    scaled = vectors / np.sqrt(np.maximum(values, SMALLEST_VARIANCE))
    mean, vectors, scaled = (array.astype(np.float32) for array in (mean, vectors, scaled))
    inputs = keras.Input((len(mean),), name="features")
    centred = inputs - mean
    inside = keras.ops.mean(keras.ops.square(keras.ops.matmul(centred, scaled)), axis=1)
    rebuilt = keras.ops.matmul(keras.ops.matmul(centred, vectors), vectors.T)
    outside = keras.ops.mean(keras.ops.square(centred - rebuilt), axis=1)
    return keras.Model(inputs, inside + outside / residual, name="score")
