"""What a running training reports, on its way from the task that launched it to whoever shows it."""

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
"""As `infra.pool` reports them: `event` is `started`, `progress` or `restarting`."""

_listeners: list[Callable[[Event], None]] = []


def listen(listener: Callable[[Event], None]) -> None:
    """Show the events of this process's trainings to `listener`, and to no other from now on."""
    _listeners[:] = [listener]


def tell(event: Event) -> None:
    """Pass an event on."""
    for listener in _listeners:
        listener(event)


def line_of(event: Event) -> str:
    """Say an event in a few words."""
    match event:
        case {"event": "started", "ranks": ranks, "hosts": hosts}:
            return f"{ranks} ranks start on {', '.join(hosts)}"
        case {"event": "restarting", "why": why}:
            return f"restarts from its last checkpoint: {why}"
        case {"event": "progress", "figures": figures}:
            return ", ".join(f"{name} {_shown(value)}" for name, value in figures.items() if name in SHOWN)
        case _:
            return ""


SHOWN = ("epoch", "step", "loss", "validation_loss", "rows_per_second", "allreduce_seconds")


def _shown(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
