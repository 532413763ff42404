"""Prefect events of a model. The payload carries ids, never data."""

import time

import httpx
from prefect.client.orchestration import get_client
from prefect.events import Event, emit_event
from prefect.events.filters import EventFilter, EventIDFilter
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

from infra.settings import Settings
from monitoring.records import Record, TrainingRecord, WindowRecord
from monitoring.verdicts import DriftStatus

FLUSH_TIMEOUT_S = 30.0

_LAST: list[Event] = []


def emit(settings: Settings, event: str, **identifiers: str | None) -> None:
    """Emit one of the events of the outside interface for the configured model."""
    emitted = emit_event(
        event=event,
        resource={"prefect.resource.id": f"floodmark.model.{settings.model}"},
        payload={key: value for key, value in identifiers.items() if value is not None},
    )
    _LAST[:] = [emitted] if emitted else []


def announce(settings: Settings, record: Record) -> None:
    """Emit what a ledger entry tells the world; whoever acts on an event finds its entry in the ledger."""
    match record:
        case WindowRecord(outcome="quarantined"):
            emit(settings, "floodmark.data.invalid", window=record.window.id)
        case WindowRecord(drift=drift, decision=decision):
            told = {"window": record.window.id, "champion": record.champion_version}
            if drift is not None and drift.status is DriftStatus.DRIFTED:
                emit(settings, "floodmark.drift.detected", **told)
            elif decision is not None and decision.retrain:  # the first model, or one that is too old
                emit(settings, "floodmark.training.due", **told)
        case TrainingRecord(version=str(version)):
            emit(settings, "floodmark.model.registered", request=record.request_id, version=version)
        case TrainingRecord():
            emit(settings, "floodmark.training.failed", request=record.request_id)
        case _:
            pass


def flush() -> bool:
    """Send what Prefect's workers still hold; return whether the last event is stored.

    Events are stored in their order, some time after the server took them: it must not end before.
    """
    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=FLUSH_TIMEOUT_S)
    deadline = time.monotonic() + FLUSH_TIMEOUT_S
    try:
        while _LAST and not _stored(_LAST[0]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
    except httpx.HTTPError:  # the server is gone, which whoever needed it has said already
        return False
    return True


def _stored(event: Event) -> bool:
    with get_client(sync_client=True) as client:
        page = client.read_events(EventFilter(id=EventIDFilter(id=[event.id])), limit=1)
    return bool(page.events)
