"""The flow `retrain`: from windows to a registered candidate."""

from pathlib import Path

import numpy as np
import pandas as pd
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.events import emit
from flows.installation import Installation, find_windows, known_schema, open_installation, read_clean
from flows.retries import when_retryable
from infra.pool import POOLS
from infra.settings import Settings
from monitoring.records import TrainingRecord
from training.errors import InvalidArtifactError, InvalidWindowError, TrainingFailedError
from training.split import split_rows, trusted_rows
from training.types import TrainingJob, TrainingRequest, TrainingResult, Window, WindowVersion

TRAINING_ROWS = "training.parquet"
CALIBRATION_ROWS = "calibration.parquet"
REFERENCE_ROWS = "reference.parquet"
JUDGE_ROWS = "judge.parquet"
ROWS_PER_GROUP = 50_000


@task(retries=2, retry_delay_seconds=2, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def prepare_rows(installation: Installation, source: str, request: TrainingRequest) -> Path:
    """Split the windows' rows three ways and store the parts; return their folder.

    The guard takes rows that a trustworthy champion alerted on out of the training part only:
    calibration, judging and the reference of later drift checks must see what really arrives.
    """
    folder = installation.training_folder(request.id)
    opened = installation.source(source)
    frames, trusted = [], []
    for window in find_windows(opened, request.windows):
        frames.append(read_clean(opened, window, request.schema))
        trusted.append(guard(installation, window, request, len(frames[-1])))
    rows, mask = pd.concat(frames, ignore_index=True), np.concatenate(trusted)
    training, calibration, judge = split_rows(len(rows), request.seed)
    features = request.schema.names()
    parts = {
        TRAINING_ROWS: rows.loc[training[mask[training]], features],
        CALIBRATION_ROWS: rows.loc[calibration, features],
        REFERENCE_ROWS: rows.loc[np.concatenate([training, calibration]), features],
        JUDGE_ROWS: rows.loc[judge],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        part.to_parquet(folder / f".{name}", index=False, row_group_size=ROWS_PER_GROUP)
        (folder / f".{name}").replace(folder / name)
    return folder


def guard(installation: Installation, window: Window, request: TrainingRequest, rows: int) -> np.ndarray:
    """Return which of a window's rows may be trained on, by the champion's own stored alerts."""
    if request.champion_version is None:
        return np.ones(rows, dtype=bool)
    stored = installation.read_scores(window.id)
    mark = installation.champion(request.champion_version).scorer.threshold
    factor = installation.settings.training.trusted_alert_factor
    threshold = float(stored["threshold"].iloc[0])
    return trusted_rows(stored["anomaly_score"].to_numpy(), threshold, mark.target_alert_rate, factor).mask


@task(retries=1, retry_delay_seconds=5, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def train(installation: Installation, request: TrainingRequest, folder: Path) -> TrainingResult:
    """Launch the ranks on the pool and wait for their result; a finished training is found again."""
    settings = installation.settings.training
    job = TrainingJob(
        request=request,
        training_rows=str(folder / TRAINING_ROWS),
        calibration_rows=str(folder / CALIBRATION_ROWS),
        reference_rows=str(folder / REFERENCE_ROWS),
        output=str(folder),
    )
    return POOLS[settings.pool](job, folder, timeout=settings.timeout_seconds)


@task(retries=2, retry_delay_seconds=2, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def register(
    installation: Installation, request: TrainingRequest, result: TrainingResult, reason: str
) -> str:
    """Register model and flood mark together; the same request never makes two versions."""
    return installation.registry.register(request, result, reason=reason)


@flow(name="retrain", flow_run_name="retrain: {reason}")
def retrain(
    settings: Settings, source: str, reason: str, windows: tuple[WindowVersion, ...]
) -> TrainingRecord:
    """Prepare rows, train with Horovod, register. A training that cannot succeed is recorded as failed."""
    installation = open_installation(settings)
    request = request_training(installation, windows)
    try:
        folder = prepare_rows(installation, source, request)
        result = train(installation, request, folder)
    except (TrainingFailedError, InvalidWindowError, InvalidArtifactError) as error:
        emit(settings, "floodmark.training.failed", request=request.id)
        hint = error.hint.splitlines()[:1]  # the rest is a traceback, which the training's log holds too
        return record_of(request, reason, error=" ".join([error.message, *hint]))
    version = register(installation, request, result, reason)
    emit(settings, "floodmark.model.registered", request=request.id, version=version)
    return record_of(request, reason, result=result, version=version)


def request_training(installation: Installation, windows: tuple[WindowVersion, ...]) -> TrainingRequest:
    """Put together everything that determines the training."""
    settings, history = installation.settings, installation.ledger.load()
    champion = history.champion
    schema = known_schema(installation.champion(champion) if champion else None, history, settings)
    if schema is None:
        raise TrainingFailedError("there is no valid window to learn the feature schema from")
    return TrainingRequest(
        model=settings.model,
        windows=windows,
        schema=schema,
        detector=settings.detector,
        target_alert_rate=settings.threshold.target_alert_rate,
        threshold_method=settings.threshold.method,
        world_size=settings.training.ranks,
        seed=settings.training.seed,
        champion_version=champion,
    )


def record_of(
    request: TrainingRequest,
    reason: str,
    *,
    result: TrainingResult | None = None,
    version: str | None = None,
    error: str | None = None,
) -> TrainingRecord:
    """Record how a training ended."""
    return TrainingRecord(
        request_id=request.id,
        reason=reason,
        windows=request.windows,
        detector=request.detector,
        world_size=request.world_size,
        rows=result.rows if result else 0,
        seconds=result.seconds if result else 0.0,
        outcome="registered" if result else "failed",
        threshold=result.threshold if result else None,
        version=version,
        error=error,
    )
