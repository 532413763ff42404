"""Prefect events of a model. The payload carries ids, never data."""

from prefect.events import emit_event

from infra.settings import Settings


def emit(settings: Settings, event: str, **identifiers: str | None) -> None:
    """Emit one of the events of the outside interface for the configured model."""
    emit_event(
        event=event,
        resource={"prefect.resource.id": f"floodmark.model.{settings.model}"},
        payload={key: value for key, value in identifiers.items() if value is not None},
    )
