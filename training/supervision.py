"""What known anomalies do to a training: labelled ones, or ones that are made from normal rows."""

import math
from dataclasses import dataclass
from typing import Any, Literal

InjectionKind = Literal["spike", "shift", "swap", "dropout"]
"""Kinds of made anomalies; `training.inject` makes them."""

SMALLEST_LOSS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """How known anomalies take part in a training. By default they do not.

    Attributes:
        anomaly_weight: Of an anomaly's loss beside that of a normal row; 0 leaves them out.
        anomaly_share: Of the rows of each epoch: where they are fewer, each is drawn again and again, and
            where they are more, another part of them in each epoch. None takes each once.
        synthetic: Kinds of anomalies that are made from the training rows, beside the labelled ones.
    """

    anomaly_weight: float = 0.0
    anomaly_share: float | None = None
    synthetic: tuple[InjectionKind, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.anomaly_weight < math.inf:
            raise ValueError(f"anomaly_weight is {self.anomaly_weight}; it must be a number from 0")
        if self.anomaly_share is not None and not 0 < self.anomaly_share < 1:
            raise ValueError(f"anomaly_share is {self.anomaly_share}; it must lie between 0 and 1")
        if not self.anomaly_weight and (self.anomaly_share or self.synthetic):
            raise ValueError("anomaly_weight is 0, so that anomaly_share and synthetic have no effect")


def supervised(losses: Any, anomalous: Any, weight: float) -> Any:  # noqa: ANN401 - tensors
    """Return what to minimise of each row: the loss h of a normal one, -log(1 - exp(-h)) of an anomaly.

    The latter falls to zero the worse the network does on the anomaly (Ruff et al. 2020, "Rethinking
    assumptions in deep anomaly detection", after their "Deep semi-supervised anomaly detection"; its
    gradient stays smaller than that of the 1 / h there, where the network does well on it).

    Args:
        losses: Of the detector, (rows,), not negative.
        anomalous: (rows,) bool.
        weight: Of anomalies.
    """
    import tensorflow as tf  # noqa: PLC0415 - the control plane validates `Supervision` without TensorFlow

    repelled = -tf.math.log(-tf.math.expm1(-tf.maximum(losses, SMALLEST_LOSS)))
    return tf.where(anomalous, weight * repelled, losses)
