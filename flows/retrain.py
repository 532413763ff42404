"""The flow `retrain`: from windows to a registered candidate."""

from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.installation import Installation, find_windows, known_schema, open_installation, read_clean
from flows.retries import when_retryable
from flows.training_events import tell
from flows.worker import under_worker
from infra.pool import POOLS
from infra.settings import Settings
from infra.source import Source
from monitoring.event_times import rows_per_day
from monitoring.frames import usable_labels
from monitoring.records import TrainingRecord
from training.detectors import detector
from training.detectors.sequence_autoencoder import SequenceOptions
from training.errors import InvalidArtifactError, InvalidWindowError, TrainingFailedError
from training.guard import GuardedRows, champion_excess, guard_rows
from training.parts import (
    CALIBRATION_ANOMALIES,
    CALIBRATION_ROWS,
    HELD_OUT_ROWS,
    REFERENCE_ROWS,
    TRAINING_ANOMALIES,
    TRAINING_ROWS,
    parts_of_rows,
    parts_of_sequences,
)
from training.sequences import Sequences, find_stretches, in_stretches, keep_rows, learned_gap
from training.types import GuardPolicy, TrainingJob, TrainingRequest, TrainingResult, WindowVersion

ROWS_PER_GROUP = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """The folder of a training's rows, what the contamination guard left out of them and why, and their pace.

    `rows_per_day` is None without a time column, or where each window alone holds a single instant;
    `max_gap_seconds` is None where the detector reads every row for itself.
    """

    folder: Path
    guard: str
    rows_per_day: float | None
    max_gap_seconds: float | None


@task(retries=2, retry_delay_seconds=2, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def prepare_rows(installation: Installation, source: str, request: TrainingRequest) -> PreparedRows:
    """Split the windows' rows three ways and store the parts.

    The guard takes rows out of the training and the calibration part: judging and the reference of later
    drift checks must see what really arrives. What labels call anomalous of the calibration part is stored
    beside it, as many as come, for calibrators that weigh found anomalies against false alerts; of the
    training part, where the request asks for supervision.

    Raises:
        InvalidWindowError: A window is gone, or rows of sequences have no time or entity.
        TrainingFailedError: The guard would leave out too much, or what is left is too little.
    """
    folder = installation.training_folder(request.id)
    opened = installation.source(source)
    slices = installation.settings.gates.slices
    frames = [
        read_clean(opened, window, request.schema, beside=slices)
        for window in find_windows(opened, request.windows)
    ]
    rows = pd.concat(frames, ignore_index=True)
    known = np.concatenate([known_anomalies(frame, request) for frame in frames])
    sequences = read_as(installation, request, rows)
    if sequences is not None:
        found = find_stretches(rows, request.schema, sequences.max_gap_seconds)
        rows, known = in_stretches(rows, found), known[found.order]
    guarded = guard(installation, rows, known, request)
    if sequences is None:
        parts = parts_of_rows(rows, known, guarded, request)
    else:
        parts = parts_of_sequences(rows, known, guarded, request, sequences.length)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        part.to_parquet(folder / f".{name}", index=False, row_group_size=ROWS_PER_GROUP)
        (folder / f".{name}").replace(folder / name)
    return PreparedRows(
        folder=folder,
        guard=guarded.reason,
        rows_per_day=pace(opened, frames, request),
        max_gap_seconds=sequences.max_gap_seconds if sequences and reads_sequences(request) else None,
    )


def read_as(installation: Installation, request: TrainingRequest, rows: pd.DataFrame) -> Sequences | None:
    """Say how the rows are read as sequences, by the new detector or the champion; None if by neither."""
    version = request.champion_version
    champion = installation.champion(version).scorer.sequences if version is not None else None
    if not reads_sequences(request):
        return champion
    options = detector(request.detector)
    stated = options.max_gap_seconds if isinstance(options, SequenceOptions) else 0.0
    return Sequences(
        length=max(options.window_rows, champion.length if champion else 1),
        max_gap_seconds=stated or learned_gap(rows, request.schema),
    )


def reads_sequences(request: TrainingRequest) -> bool:
    """Whether the detector that is asked for reads rows as sequences."""
    return detector(request.detector).window_rows > 1


def pace(source: Source, frames: list[pd.DataFrame], request: TrainingRequest) -> float | None:
    """Return the rows of a day; where other windows lie between, the time between windows does not count."""
    time_column = request.schema.time_column
    if any(time_column not in frame for frame in frames):
        return None
    listed = {window.id: place for place, window in enumerate(source.windows())}
    numbered = enumerate(zip(request.windows, frames, strict=True))
    runs = groupby(numbered, key=lambda item: listed[item[1][0].id] - item[0])  # while they follow on
    return rows_per_day(pd.concat([frame[time_column] for _, (_, frame) in run]) for _, run in runs)


def known_anomalies(frame: pd.DataFrame, request: TrainingRequest) -> np.ndarray:
    """Return which rows of a window are labelled anomalous, bool (rows,); an unknown label is none."""
    labels = usable_labels(frame, request.schema)
    return np.zeros(len(frame), dtype=bool) if labels is None else labels == 1


def guard(
    installation: Installation, rows: pd.DataFrame, known: np.ndarray, request: TrainingRequest
) -> GuardedRows:
    """Ask the champion, where there is one, about the rows that no label tells of; let the guard decide."""
    excess, target = None, request.target_alert_rate
    if request.champion_version is not None:
        champion = installation.champion(request.champion_version)
        target = champion.scorer.threshold.target_alert_rate
        factor = request.guard.trusted_alert_factor
        excess = np.full(len(rows), np.inf)
        unlabelled = keep_rows(rows, ~known)
        excess[~known] = champion_excess(champion.scorer, champion.reference.rows, unlabelled, factor)
    return guard_rows(
        rows,
        request.schema,
        known=known,
        excess=excess,
        target_alert_rate=target,
        policy=request.guard,
        seed=request.seed,
    )


@task(retries=1, retry_delay_seconds=5, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def train(installation: Installation, request: TrainingRequest, prepared: PreparedRows) -> TrainingResult:
    """Launch the ranks on the pool and wait for their result; a finished training is found again."""
    settings, folder = installation.settings.training, prepared.folder
    job = TrainingJob(
        request=request,
        training_rows=str(folder / TRAINING_ROWS),
        calibration_rows=str(folder / CALIBRATION_ROWS),
        reference_rows=str(folder / REFERENCE_ROWS),
        held_out_rows=str(folder / HELD_OUT_ROWS),
        output=str(folder),
        calibration_anomalies=str(folder / CALIBRATION_ANOMALIES),
        training_anomalies=str(folder / TRAINING_ANOMALIES),
        rows_per_day=prepared.rows_per_day,
        checkpoints=settings.checkpoints and _absolute(settings.checkpoints),
        checkpoint_seconds=settings.checkpoint_seconds,
        megabytes_per_rank=settings.megabytes_per_rank,
        scratch=settings.scratch and _absolute(settings.scratch),
        s3_endpoint_url=installation.settings.s3.endpoint_url,
        max_gap_seconds=prepared.max_gap_seconds,
    )
    return POOLS[settings.pool](job, folder, timeout=settings.timeout_seconds, settings=settings, report=tell)


def _absolute(place: str) -> str:
    """Return a path from the root, as ranks need it that work elsewhere; a URL as it is."""
    return place if "://" in place else str(Path(place).expanduser().absolute())


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
    guarded = ""
    try:
        prepared = prepare_rows(installation, source, request)
        guarded = prepared.guard
        with under_worker():
            result = train(installation, request, prepared)
    except (TrainingFailedError, InvalidWindowError, InvalidArtifactError) as error:
        hint = error.hint.splitlines()[:1]  # the rest is a traceback, which the training's log holds too
        failed = record_of(request, reason, error=" ".join([error.message, *hint]))
        return replace(failed, guard=guarded)
    version = register(installation, request, result, reason)
    return replace(record_of(request, reason, result=result, version=version), guard=guarded)


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
        threshold_beta=settings.threshold.beta,
        alerts_per_day=settings.threshold.alerts_per_day,
        supervision=settings.supervision,
        world_size=settings.training.ranks,
        seed=settings.training.seed,
        champion_version=champion,
        guard=GuardPolicy(
            trim_share=settings.training.trim_share,
            trusted_alert_factor=settings.training.trusted_alert_factor,
        ),
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
