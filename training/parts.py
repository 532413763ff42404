"""The parts of a training's rows, each a file: single rows at random, or blocks of sequences."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.file_scores import COUNTED
from training.guard import GuardedRows
from training.inject import inject_anomalies
from training.sequences import STRETCH, Mask, keep_rows, run_bounds
from training.split import require_windows, split_blocks, split_rows
from training.types import TrainingRequest

TRAINING_ROWS = "training.parquet"
CALIBRATION_ROWS = "calibration.parquet"
TRAINING_ANOMALIES = "training_anomalies.parquet"
CALIBRATION_ANOMALIES = "calibration_anomalies.parquet"
REFERENCE_ROWS = "reference.parquet"
HELD_OUT_ROWS = "held_out.parquet"
JUDGE_ROWS = "judge.parquet"
SYNTHETIC_ROWS = 1_000
"""That `supervision.synthetic` makes; `supervision.anomaly_share` says how often each is drawn."""


def parts_of_rows(
    rows: pd.DataFrame, known: Mask, guarded: GuardedRows, request: TrainingRequest
) -> dict[str, pd.DataFrame]:
    """Split rows that stand for themselves; `known` (rows,) are labelled anomalous.

    Raises:
        TrainingFailedError: They are too few.
    """
    training, calibration, judge = split_rows(len(rows), request.seed)
    features, arriving = request.schema.names(), _arriving(rows, request)
    parts = {
        TRAINING_ROWS: rows.loc[training[guarded.training[training]], features],
        CALIBRATION_ROWS: rows.loc[calibration[guarded.calibration[calibration]], features],
        CALIBRATION_ANOMALIES: rows.loc[calibration[known[calibration]], features],
        REFERENCE_ROWS: rows.loc[np.concatenate([training, calibration]), arriving],
        HELD_OUT_ROWS: rows.loc[np.concatenate([calibration, judge]), arriving],
        JUDGE_ROWS: rows.loc[judge],
    }
    labelled = rows.loc[training[known[training]], features]
    parts[TRAINING_ANOMALIES] = training_anomalies(parts[TRAINING_ROWS], labelled, request)
    return parts


def parts_of_sequences(
    rows: pd.DataFrame, known: Mask, guarded: GuardedRows, request: TrainingRequest, length: int
) -> dict[str, pd.DataFrame]:
    """Split rows in stretches, with the column `STRETCH`, for windows of `length` rows.

    Rows of other parts, and those that the guard takes out, are gaps in a part: no window spans them. The
    calibration part's anomalies stand among all rows of that part, and alone count.

    Raises:
        TrainingFailedError: They are too few, or no stretch that is left to train on is as long as a window.
    """
    part = split_blocks(run_bounds(rows[STRETCH].to_numpy(np.int64)), length, request.seed)
    training, calibration, judge = (part == number for number in range(3))
    features = [*request.schema.names(), STRETCH]
    arriving = [*_arriving(rows, request), STRETCH]

    def taken(kept: npt.NDArray[np.bool_], columns: list[str]) -> pd.DataFrame:
        return keep_rows(rows, kept)[columns]

    parts = {
        TRAINING_ROWS: taken(training & guarded.training, features),
        CALIBRATION_ROWS: taken(calibration & guarded.calibration, features),
        CALIBRATION_ANOMALIES: taken(calibration, features).assign(**{COUNTED: known[calibration]}),
        REFERENCE_ROWS: taken(training | calibration, arriving),
        HELD_OUT_ROWS: taken(calibration | judge, arriving),
        JUDGE_ROWS: keep_rows(rows, judge),
    }
    bounds = run_bounds(parts[TRAINING_ROWS][STRETCH].to_numpy(np.int64))
    require_windows(bounds, np.ones(bounds[-1], dtype=bool), length)
    labelled = rows.loc[training & known, request.schema.names()]
    parts[TRAINING_ANOMALIES] = training_anomalies(parts[TRAINING_ROWS], labelled, request)
    return parts


def training_anomalies(
    normal: pd.DataFrame, labelled: pd.DataFrame, request: TrainingRequest
) -> pd.DataFrame:
    """Return the anomalies that the training is to know of: none, or the labelled ones and those it makes."""
    supervision = request.supervision
    if not supervision.anomaly_weight:
        return labelled.head(0)
    if not supervision.synthetic:
        return labelled
    made, _ = inject_anomalies(normal, request.schema, supervision.synthetic, request.seed, SYNTHETIC_ROWS)
    return pd.concat([labelled, made[labelled.columns]], ignore_index=True)


def _arriving(rows: pd.DataFrame, request: TrainingRequest) -> list[str]:
    """Return the columns of a reference: features and, where there is one, the time."""
    time = request.schema.time_column
    return [*request.schema.names(), time] if time is not None and time in rows else request.schema.names()
