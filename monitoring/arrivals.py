"""What a source lists, beside what the ledger has taken of it."""

from collections.abc import Iterable

from monitoring.history import SET_ASIDE, History
from training.types import Window


def due(history: History, listed: Iterable[Window], configuration: str) -> list[Window]:
    """Return the windows to take: never taken, or set aside and since repaired or to be read otherwise."""
    latest = history.latest_windows
    return [
        window
        for window in listed
        if (record := latest.get(window.id)) is None
        or (
            record.outcome in SET_ASIDE
            and (record.window.fingerprint, record.configuration) != (window.fingerprint, configuration)
        )
    ]


def rewritten(history: History, listed: Iterable[Window]) -> list[str]:
    """Return the windows whose objects changed after they were taken; they are not taken twice."""
    latest = history.latest_windows
    return [
        window.id
        for window in listed
        if (record := latest.get(window.id)) is not None
        and record.outcome not in SET_ASIDE
        and record.window.fingerprint != window.fingerprint
    ]
