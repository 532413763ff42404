"""The options that all detectors of the fit loop share."""

import math
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid", strict=True)
"""Of every detector's options: unknown ones and values of another type are errors."""
STEPS_PER_EPOCH = 40
"""Small data sets get smaller batches, so that an epoch has about so many steps."""

Positive = Annotated[int, Field(ge=1)]
PositiveReal = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Real = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Noise = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class FitOptions:
    """What the fit loop reads; see `training.detectors.Detector`. Batches have rows of all ranks."""

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: PositiveReal = 2e-3
    epochs: Positive = 40
    patience: Positive = 10
    validation_share: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    smallest_batch: Positive = 32
    largest_batch: Positive = 512
    local_steps: Positive = 1

    def batch_rows(self, rows: int) -> int:
        """Return the power of two nearest to a fortieth of the rows, within bounds."""
        fitting = int(2 ** round(math.log2(max(1.0, rows / STEPS_PER_EPOCH))))
        return min(max(fitting, self.smallest_batch), self.largest_batch)
