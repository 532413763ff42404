"""The flood mark: from the scores of held-out rows to the line above which a row is an alert."""

import numpy as np

from training.calibrators import CALIBRATORS, CalibrationScores, ThresholdSpec
from training.errors import TrainingFailedError
from training.types import Threshold


def calibrate(spec: ThresholdSpec, scores: CalibrationScores) -> Threshold:
    """Choose the threshold for held-out rows, those of all ranks together.

    Raises:
        TrainingFailedError: A normal row's score is not finite, or what is asked for cannot be had from
            these rows.
    """
    normal = scores.normal
    wrong = normal.size - int(np.isfinite(normal).sum())
    if wrong:
        raise TrainingFailedError(
            f"{wrong} of {normal.size} calibration scores are not finite",
            hint="The detector diverged: lower its learning rate, or look at the training data.",
        )
    mark = CALIBRATORS[spec.method](spec, scores)
    return Threshold(
        value=mark.value,
        method=spec.method,
        target_alert_rate=mark.alert_rate,
        calibration_rows=normal.size,
        note=mark.note,
    )
