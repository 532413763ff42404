"""Prefect events of a model. The payload carries ids, never data."""

from prefect.events import emit_event
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

from infra.settings import Settings

FLUSH_TIMEOUT_S = 10.0


def emit(settings: Settings, event: str, **identifiers: str | None) -> None:
    """Emit one of the events of the outside interface for the configured model."""
    emit_event(
        event=event,
        resource={"prefect.resource.id": f"floodmark.model.{settings.model}"},
        payload={key: value for key, value in identifiers.items() if value is not None},
    )


def flush() -> None:
    """Send what Prefect's workers still hold, before its server ends."""
    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=FLUSH_TIMEOUT_S)
