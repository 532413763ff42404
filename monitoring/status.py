"""Where a model stands, as `floodmark status --json` prints it (schema_version 1)."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from monitoring.history import History
from monitoring.records import Entry, PromotionRecord, TrainingRecord, WindowRecord
from monitoring.verdicts import DriftVerdict

SCHEMA_VERSION = 1


def status(history: History, model: str, now: datetime | None = None) -> dict[str, Any]:
    """Return the whole status as plain JSON values; the ledger is its only source.

    A mute is shown while it is in force at `now`, the present by default.
    """
    mute = history.mute(now or datetime.now(UTC))
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "champion": _version(history, history.champion),
        "previous": _version(history, history.previous),
        "challenger": _version(history, history.challenger),
        "mute": {"until": _time(mute.until), "reason": mute.reason} if mute and mute.until else None,
        "windows": [_window(record) for record in history.latest_windows.values()],
        "trainings": [_training(record) for record in history.trainings],
        "promotions": [
            _promotion(entry, entry.record)
            for entry in history.entries
            if isinstance(entry.record, PromotionRecord)
        ],
    }


def _version(history: History, version: str | None) -> dict[str, Any] | None:
    entry = history.registration_of(version) if version else None
    if version is None:
        return None
    if (
        entry is None
        or not isinstance(training := entry.record, TrainingRecord)
        or training.threshold is None
    ):
        return {"version": version, "detector": None, "threshold": None}
    return {
        "version": version,
        "detector": training.detector.name,
        "threshold": training.threshold.value,
        "threshold_method": training.threshold.method,
        "threshold_note": training.threshold.note,
        "target_alert_rate": training.threshold.target_alert_rate,
        "registered_at": _time(entry.at),
        "training_windows": [window.id for window in training.windows],
        "training_rows": training.rows,
        "world_size": training.world_size,
    }


def _window(record: WindowRecord) -> dict[str, Any]:
    return {
        "id": record.window.id,
        "rows": record.rows,
        "outcome": record.outcome,
        "reason": record.reason,
        "champion_version": record.champion_version,
        "alerts": record.alerts,
        "alert_rate": record.alert_rate,
        "compared": [asdict(other) | {"drifted": list(other.drifted)} for other in record.compared],
        "score_quantiles": record.scores.quantiles if record.scores else None,
        "drift": None if record.drift is None else _drift(record.drift),
        "decision": None
        if record.decision is None
        else {
            "retrain": record.decision.retrain,
            "reason": record.decision.reason,
            "held": list(record.decision.held),
        },
    }


def _drift(verdict: DriftVerdict) -> dict[str, Any]:
    return {
        "status": verdict.status.value,
        "share": verdict.share,
        "reason": verdict.reason,
        "columns": verdict.drifted_columns,
        "tests": [asdict(test) for test in verdict.tests],
    }


def _training(record: TrainingRecord) -> dict[str, Any]:
    return {
        "id": record.request_id,
        "reason": record.reason,
        "world_size": record.world_size,
        "rows": record.rows,
        "seconds": record.seconds,
        "outcome": record.outcome,
        "version": record.version,
        "error": record.error,
        "guard": record.guard,
    }


def _promotion(entry: Entry, record: PromotionRecord) -> dict[str, Any]:
    return {
        "version": record.version,
        "from": record.from_version,
        "at": _time(entry.at),
        "by": record.by,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "gates": [
            {
                "gate": gate.gate,
                "verdict": gate.verdict.value,
                "observed": gate.observed,
                "bound": gate.bound,
                "reason": gate.reason,
            }
            for gate in record.gates
        ],
    }


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
