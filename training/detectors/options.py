"""The options that all detectors of the fit loop share, and the schedule that they make.

Plain numbers, no TensorFlow: the control plane validates options, and tests try the schedule, without it.
"""

import math
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid", strict=True)
"""Of every detector's options: unknown ones and values of another type are errors."""
STEPS_PER_EPOCH = 40
"""Small data sets get smaller batches, so that an epoch has about so many steps."""
EXCHANGES_PER_EPOCH = 40
MOST_LOCAL_STEPS = 32

Positive = Annotated[int, Field(ge=1)]
PositiveReal = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Real = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Noise = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class FitOptions:
    """Options. A detector's config inherits them, and gives those another default that need one.

    The batch of a step, over all ranks, follows from the number of rows alone (`batch_rows`): a rank more
    makes each rank's part smaller and leaves every step, and so the learning rate, as it was.

    Attributes:
        optimizer: Adam (Kingma and Ba 2015) or plain gradient descent.
        learning_rate: At a batch of `base_batch` rows; it falls to zero along a half cosine over all epochs
            (Loshchilov and Hutter 2017, "SGDR", without restarts).
        learning_rate_scaling: What the learning rate is multiplied by. `none`: 1. `linear`: the batch of all
            ranks over `base_batch` (Goyal et al. 2017, "Accurate, large minibatch SGD"; for gradient
            descent). `square_root`: the square root of that (Krizhevsky 2014, "One weird trick for
            parallelizing convolutional neural networks"; Hoffer et al. 2017, "Train longer, generalize
            better"; for Adam: Malladi et al. 2022, "On the SDEs and scaling rules for adaptive gradient
            algorithms").
        base_batch: The rows of a step that `learning_rate` was chosen for.
        warmup_epochs: So long the learning rate rises from nearly zero, linearly in the steps, before it
            falls (gradual warm-up, Goyal et al. 2017, section 2.2).
        epochs: At most so many.
        patience: Stop after so many epochs without a lower validation loss.
        validation_share: The share of the training rows that judges the epochs.
        smallest_batch: Rows of a step over all ranks, at least.
        largest_batch: And at most.
        local_steps: Steps between two exchanges of the ranks. 1 adds up gradients at every step; more average
            the weights (McMahan et al. 2017, "Communication-efficient learning of deep networks from
            decentralized data"; Stich 2019, "Local SGD converges fast and communicates little"). None takes
            a fortieth of the steps of an epoch, at most 32.
        exchange: The type in which gradients, or changes of weights, travel; sums are taken in it too.
        clip_norm: The greatest norm of all gradients together (Pascanu et al. 2013, "On the difficulty of
            training recurrent neural networks"); none clips nothing.
        clipping: Whether each rank's own mean gradient is clipped, before the ranks average theirs, or their
            average, as one rank would have it. With local steps there is no average to clip.
        precision: `mixed_bfloat16` computes layers in bfloat16 and keeps weights, losses, statistics and the
            exported model in float32 (Kalamkar et al. 2019, "A study of bfloat16 for deep learning
            training"); it has the range of float32 and needs no loss scaling.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: PositiveReal = 2e-3
    learning_rate_scaling: Literal["none", "linear", "square_root"] = "none"
    base_batch: Positive = 256
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    epochs: Positive = 40
    patience: Positive = 10
    validation_share: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    smallest_batch: Positive = 32
    largest_batch: Positive = 512
    local_steps: Positive | None = None
    exchange: Literal["float32", "float16"] = "float32"
    clip_norm: PositiveReal | None = None
    clipping: Literal["before_averaging", "after_averaging"] = "before_averaging"
    precision: Literal["float32", "mixed_bfloat16"] = "float32"

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.smallest_batch > self.largest_batch:
            raise ValueError(
                f"smallest_batch is {self.smallest_batch}, more than largest_batch, {self.largest_batch}"
            )
        if self.clipping == "after_averaging" and self.local_steps != 1:
            raise ValueError(
                "clipping is 'after_averaging', but gradients are averaged with local_steps = 1 only"
            )
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs is {self.warmup_epochs}; it must be less than epochs, {self.epochs}"
            )
        return self

    @property
    def window_rows(self) -> int:
        """Rows that the network reads together: 1 for tables, the length of a window for sequences."""
        return 1

    def batch_rows(self, rows: int) -> int:
        """Return the rows of one step over all ranks when there are `rows` training rows in all.

        The power of two nearest to a fortieth of the rows, within bounds. Of sequences, windows count.
        """
        fitting = int(2 ** round(math.log2(max(1.0, rows / STEPS_PER_EPOCH))))
        return min(max(fitting, self.smallest_batch), self.largest_batch)

    def steps_between_exchanges(self, steps: int) -> int:
        """Return the local steps where an epoch has `steps` steps."""
        return self.local_steps or min(max(1, steps // EXCHANGES_PER_EPOCH), MOST_LOCAL_STEPS)

    def peak_learning_rate(self, batch: int) -> float:
        """Return the scaled learning rate where a step has `batch` rows over all ranks."""
        scale = {"none": 0.0, "linear": 1.0, "square_root": 0.5}[self.learning_rate_scaling]
        return float(self.learning_rate * (batch / self.base_batch) ** scale)

    def learning_rates(self, first: int, last: int, steps: int, batch: int) -> npt.NDArray[np.float32]:
        """Return the learning rates of some steps, counted from the first of the training.

        Args:
            first: The first of the steps wanted, from 0.
            last: The one after the last of them.
            steps: Steps of an epoch.
            batch: Rows of a step over all ranks.
        """
        step = np.arange(first, last)
        rising, falling = steps * self.warmup_epochs, steps * (self.epochs - self.warmup_epochs)
        warm = np.minimum(1.0, (step + 1) / max(1, rising))
        fallen = np.clip((step - rising) / falling, 0.0, 1.0)
        rates = self.peak_learning_rate(batch) * warm * (1 + np.cos(np.pi * fallen)) / 2
        return np.asarray(rates, dtype=np.float32)
