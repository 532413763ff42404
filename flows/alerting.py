"""Incidents and due messages of the configured model: what the loop asks for and `floodmark status` shows."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.settings import Settings
from monitoring.alerts import Message, Site, due_messages, headline, next_command
from monitoring.history import History
from monitoring.incidents import Incident, incidents, open_incidents, snoozed_until


def site_of(settings: Settings, source: str | None = None) -> Site:
    """Return what links and commands of messages name."""
    columns = (("--time-column", settings.time_column), ("--label-column", settings.label_column))
    return Site(
        model=settings.model,
        home=str(settings.home),
        pages=settings.alerts.page_url or f"{settings.store_url}/reports",
        source=source if source is None or "://" in source else str(Path(source).absolute()),
        reading=tuple(word for option, column in columns if column for word in (option, column)),
    )


def due(settings: Settings, history: History, source: str | None) -> list[Message]:
    """Return the messages that are to be sent now."""
    return due_messages(
        history,
        site_of(settings, source),
        channels=settings.alerts.channels,
        escalate_after=settings.alerts.escalate_after,
        now=datetime.now(UTC),
    )


def incident_lines(history: History, settings: Settings) -> Iterator[str]:
    """Yield one line for each open incident, with what to run next."""
    now, site = datetime.now(UTC), site_of(settings)
    for incident in open_incidents(history, settings.alerts.channels):
        until = snoozed_until(history, incident, now)
        snoozed = f", snoozed until {until:%Y-%m-%d %H:%M} UTC" if until else ""
        told, command = headline(incident), next_command(history, incident, site)
        yield f"{incident.id} since {incident.since:%Y-%m-%d %H:%M} UTC{snoozed}: {told}; next: {command}"


def incident_values(history: History, settings: Settings) -> list[dict[str, Any]]:
    """Return every incident as plain JSON values, for `floodmark status --json`."""
    now, site = datetime.now(UTC), site_of(settings)

    def values(incident: Incident) -> dict[str, Any]:
        until = snoozed_until(history, incident, now)
        return {
            "id": incident.id,
            "kind": incident.kind,
            "subject": incident.subject,
            "reason": incident.reason,
            "since": _time(incident.since),
            "resolved_at": _time(incident.resolved_at),
            "resolution": incident.resolution,
            "windows": list(incident.windows),
            "snoozed_until": _time(until),
            "command": next_command(history, incident, site),
        }

    return [values(incident) for incident in incidents(history, settings.alerts.channels)]


def _time(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat(timespec="seconds") if at else None
