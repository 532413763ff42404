"""The flow `monitor`: one window from its objects to a record. It reads like the loop's first half."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.compare import compare_versions
from flows.installation import Champion, Installation, known_schema, open_installation
from flows.report import ScoredRows, report_window
from flows.retries import when_retryable
from infra.settings import Settings
from infra.source import Source
from monitoring.decision import event_time, with_decision
from monitoring.frames import clean_frame
from monitoring.history import History
from monitoring.inspection import Terms
from monitoring.past_windows import past_windows
from monitoring.profile import WindowProfile, profile_frame
from monitoring.quality import check_quality, quarantine_reason
from monitoring.records import WindowRecord
from monitoring.repeated import content_digest, refuse_repeated
from monitoring.schema import infer_schema, text_columns
from monitoring.score_drift import summary
from monitoring.verdicts import DriftVerdict, ScoreSummary
from monitoring.window_drift import window_drift
from training.errors import InvalidWindowError, UnscorableError
from training.types import FeatureSchema, Window, WindowVersion


@task(retries=2, retry_delay_seconds=2, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def read_window(source: Source, window: Window, texts: frozenset[str]) -> pd.DataFrame:
    """Read a window's rows; `texts` are CSV columns that are never parsed."""
    return source.read(window, texts)


@task(cache_policy=NO_CACHE)
def check_contract(profile: WindowProfile, terms: Terms) -> list[str]:
    """Hold a window's profile against the data contract; return the warnings.

    Raises:
        InvalidWindowError: The window is to be quarantined.
    """
    findings = check_quality(profile, terms, now=datetime.now(UTC))
    if reason := quarantine_reason(findings):
        raise InvalidWindowError(reason)
    return [finding.message for finding in findings]


def contract_terms(
    champion: Champion | None, schema: FeatureSchema, history: History, window_id: str, settings: Settings
) -> Terms:
    """Gather what a window is held against: champion, contract's file, earlier windows."""
    learned_from = {window.id for window in champion.request.windows} if champion else None
    return Terms(
        schema=schema,
        reference=champion.profile if champion else None,
        limits=settings.quality,
        stated=settings.stated_contract,
        past=past_windows(history, window_id, learned_from),
    )


@task(cache_policy=NO_CACHE)
def score_window(rows: pd.DataFrame, champion: Champion) -> np.ndarray:
    """Score rows with the champion; float64 (rows,).

    Raises:
        UnscorableError: A score is not finite, so that no alert of this window could be trusted.
    """
    scores = champion.scorer.score(rows)
    if not np.isfinite(scores).all():
        broken = int((~np.isfinite(scores)).sum())
        raise UnscorableError(
            f"{broken} of {len(scores)} scores of version {champion.version} are not finite"
        )
    return scores


@task(retries=2, retry_delay_seconds=2, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def store_scores(
    installation: Installation, window: Window, rows: pd.DataFrame, champion: Champion, scores: np.ndarray
) -> int:
    """Store scores and alerts beside the rows' times and labels; return the number of alerts."""
    threshold = champion.scorer.threshold.value
    alerts = scores > threshold
    features = set(champion.schema.names())
    columns = {
        **{name: rows[name] for name in rows.columns if name not in features},
        "anomaly_score": scores,
        "threshold": threshold,
        "is_anomaly": alerts,
        "model_version": champion.version,
    }
    installation.write_scores(window.id, pd.DataFrame(columns, index=rows.index))
    return int(alerts.sum())


@task(cache_policy=NO_CACHE)
def check_drift(
    rows: pd.DataFrame,
    scores: np.ndarray,
    champion: Champion,
    stream: Sequence[ScoreSummary],
    settings: Settings,
) -> DriftVerdict:
    """Compare a window with the champion's reference: Evidently's distances, our calibrated verdict."""
    seed = settings.training.seed
    return window_drift(rows, scores, champion.reference, stream, settings.drift, seed=seed)


@flow(name="monitor", flow_run_name="monitor {window.id}")
def monitor(settings: Settings, source: str, window: Window) -> WindowRecord:
    """Take one window: quality, scores, drift, decision, page. Invalid data ends as a quarantined record."""
    installation = open_installation(settings)
    history = installation.ledger.load()
    champion = installation.champion(history.champion) if history.champion else None
    opened, now = installation.source(source), datetime.now(UTC)
    listed = opened.look() if history.pending_order() else []
    taken = WindowVersion(id=window.id, fingerprint=window.fingerprint)
    try:
        schema = known_schema(champion, history, settings)
        frame = read_window(
            opened, window, text_columns(schema, settings.time_column, settings.entity_column)
        )
        digest = content_digest(frame)
        refuse_repeated(digest, window.id, history)
        schema, warnings = (schema, []) if schema else first_schema(frame, settings)
        profile = profile_frame(frame, schema, seed=settings.training.seed)
        terms = contract_terms(champion, schema, history, window.id, settings)
        warnings += check_contract(profile, terms)
        rows = clean_frame(frame, schema)
        scores = score_window(rows, champion) if champion else None
    except InvalidWindowError as error:
        record = WindowRecord(
            window=taken,
            digest="",
            rows=0,
            outcome="quarantined",
            reason=str(error),
            configuration=settings.reading,
        )
        if isinstance(error, UnscorableError):
            record = replace(record, compared=compare_versions(installation, history, rows, None))
        return report_window(installation, source, history, record)

    record = WindowRecord(
        window=taken,
        digest=digest,
        rows=len(rows),
        outcome="bootstrap",
        reason="; ".join(warnings) or "valid",
        configuration=settings.reading,
        schema=schema,
        times=profile.time.times if profile.time else None,
        event_time=event_time(frame, schema.time_column, now),
    )
    if champion is None or scores is None:
        return with_decision(record, history, settings.retraining, listed=listed, now=now)
    season, seed = settings.drift.season, settings.training.seed
    told = summary(scores, champion.reference.in_season(rows, season, seed=seed))
    drift = check_drift(rows, scores, champion, [*history.champion_scores(), told], settings)
    record = replace(
        record,
        outcome="scored",
        schema=None,
        champion_version=champion.version,
        alerts=store_scores(installation, window, rows, champion, scores),
        scores=told,
        drift=drift,
        compared=compare_versions(installation, history, rows, scores),
    )
    record = with_decision(record, history, settings.retraining, listed=listed, now=now)
    seen = ScoredRows(rows=rows, scores=scores, champion=champion)
    return report_window(installation, source, history, record, seen)


def first_schema(frame: pd.DataFrame, settings: Settings) -> tuple[FeatureSchema, list[str]]:
    """Infer the schema from the first window, by the configured column names."""
    return infer_schema(
        frame,
        time_column=settings.time_column,
        label_column=settings.label_column,
        ignore=settings.ignore_columns,
        entity_column=settings.entity_column,
    )
