"""What denoising detectors learn from: rows with Gaussian noise, and the rows as they were."""

from typing import Any


def corrupted(batch: Any, noise: float, seed: Any) -> Any:  # noqa: ANN401 - tensors
    """Return `batch` with noise added, whose standard deviation is another one for each row or window.

    It is drawn evenly from 0 to twice `noise`: little noise teaches fine structure and much noise coarse
    structure (Geras and Sutton 2015, "Scheduled denoising autoencoders"), and which of them tells anomalies
    differs from one data set to the next.

    Args:
        batch: Standardised features, the rows or windows first.
        noise: The mean standard deviation; 0 adds nothing.
        seed: (2,), decides it.
    """
    import tensorflow as tf  # noqa: PLC0415 - the control plane validates options without TensorFlow

    if not noise:
        return batch
    each = tf.concat([tf.shape(batch)[:1], tf.ones(batch.shape.rank - 1, tf.int32)], axis=0)
    deviation = tf.random.stateless_uniform(each, seed + 2, maxval=2 * noise)
    return batch + deviation * tf.random.stateless_normal(tf.shape(batch), seed)
