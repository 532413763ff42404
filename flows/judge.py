"""The flow `judge`: a registered candidate goes through every gate, beside the champion."""

import numpy as np
import pandas as pd
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.gate_report import Judged, report_judged
from flows.installation import Champion, Installation, open_installation
from flows.retrain import prepare_rows
from flows.retries import when_retryable
from infra.clean_load import CleanLoad, clean_load
from infra.settings import Settings
from monitoring.frames import as_text, usable_labels
from monitoring.history import History
from monitoring.promotion_policy import under_policy
from monitoring.records import PromotionRecord, TrainingRecord
from training.errors import ConfigurationError, InvalidArtifactError, InvalidWindowError, RetryableError
from training.gate_evidence import Evidence
from training.gates import gates_of, run_gates
from training.inject import inject_anomalies
from training.parts import JUDGE_ROWS
from training.promotion import decide_promotion
from training.sequences import keep_rows
from training.types import GateResult, PromotionOutcome

INJECTED_ROWS = 400


@task(retries=2, retry_delay_seconds=2, retry_condition_fn=when_retryable, cache_policy=NO_CACHE)
def load_cleanly(installation: Installation, version: str) -> CleanLoad:
    """Load the registered version with plain MLflow in a fresh process and reproduce its scores."""
    return clean_load(installation.registry, version)


@task(cache_policy=NO_CACHE)
def gather_evidence(
    candidate: Champion,
    champion: Champion | None,
    judge_rows: pd.DataFrame,
    loaded: CleanLoad,
    settings: Settings,
) -> Evidence:
    """Score the held-out rows, and anomalies made from them, with both models on the same rows.

    Of sequences, each anomaly stands in the place of the row that it was made of.
    """
    schema = candidate.schema
    labels = usable_labels(judge_rows, schema)
    if labels is not None and np.isnan(labels).any():  # judged by labels only where every row has one
        labels = None
    normal = judge_rows if labels is None or (labels == 1).all() else keep_rows(judge_rows, labels == 0)
    seed = settings.training.seed
    kinds_asked = settings.gates.injected_kinds
    injected, kinds = inject_anomalies(normal, schema, kinds=kinds_asked, seed=seed, count=INJECTED_ROWS)
    slices = {name: as_text(judge_rows[name]) for name in settings.gates.slices if name in judge_rows}

    return Evidence(
        threshold=candidate.scorer.threshold.value,
        target_alert_rate=candidate.scorer.threshold.target_alert_rate,
        clean_load_difference=loaded.difference,
        clean_load_error=loaded.error,
        microseconds_per_row=loaded.microseconds_per_row,
        artifact_bytes=loaded.artifact_bytes,
        judge_scores=candidate.scorer.score(judge_rows),
        judge_labels=labels,
        injected_scores=candidate.scorer.score_replaced(normal, injected),
        injected_kinds=kinds,
        champion_version=champion.version if champion else None,
        champion_threshold=champion.scorer.threshold.value if champion else None,
        champion_judge_scores=champion.scorer.score(judge_rows) if champion else None,
        champion_injected_scores=(champion.scorer.score_replaced(normal, injected) if champion else None),
        judge_slices={name: values.to_numpy() for name, values in slices.items()},
        injected_slices={name: values.loc[injected.index].to_numpy() for name, values in slices.items()},
    )


@flow(name="judge", flow_run_name="judge version {training.version}")
def judge(settings: Settings, source: str, training: TrainingRecord) -> PromotionRecord:
    """Gather evidence, run all gates, decide. Everything else follows from the record."""
    installation = open_installation(settings)
    history = installation.ledger.load()
    version = str(training.version)
    try:
        installation.registry.set_alias("challenger", version)
        candidate = installation.champion(version)
        champion = installation.champion(history.champion) if history.champion else None
        loaded = load_cleanly(installation, version)
        judge_rows = held_out_rows(installation, source, candidate, training)
        evidence = gather_evidence(candidate, champion, judge_rows, loaded, settings)
    except (ConfigurationError, InvalidArtifactError, InvalidWindowError) as error:
        return PromotionRecord(
            version=version,
            from_version=history.champion,
            by="gates",
            outcome=PromotionOutcome.UNDECIDED,
            reason=f"could not be judged: {error}",
        )
    verdict = decide(installation, history, version, run_gates(evidence, settings.gates))
    trigger = history.trigger_of(training)
    record = under_policy(verdict, trigger, settings.promotion, detector=training.detector.name)
    judged = Judged(record=record, training=training, request=candidate.request, evidence=evidence)
    return report_judged(installation, source, judged)


def held_out_rows(
    installation: Installation, source: str, candidate: Champion, training: TrainingRecord
) -> pd.DataFrame:
    """Return the rows that neither training nor calibration saw, prepared again if need be."""
    stored = installation.training_folder(training.request_id) / JUDGE_ROWS
    if not stored.is_file():
        prepare_rows(installation, source, candidate.request)
    return pd.read_parquet(stored)


def decide(
    installation: Installation, history: History, version: str, gates: tuple[GateResult, ...]
) -> PromotionRecord:
    """Decide on the gates, against the champion that they compared with.

    Raises:
        RetryableError: Somebody moved the champion meanwhile; the candidate is judged again.
    """
    champion_now = installation.registry.aliases().champion
    demanded = gates_of(installation.settings.gates)
    decision = decide_promotion(gates, history.champion, champion_now, demanded=demanded)
    if decision.judge_again:
        raise RetryableError(decision.reason, hint="nothing was promoted; the next run judges it again")
    return PromotionRecord(
        version=version,
        from_version=history.champion,
        by="gates",
        outcome=decision.outcome,
        reason=decision.reason,
        gates=gates,
    )
