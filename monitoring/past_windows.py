"""What the ledger knows of earlier windows, and the data contract compares a window with."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from monitoring.history import SET_ASIDE, History


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWindows:
    """Earlier windows: of those the champion learned from, rows and largest gaps; of all, the ends.

    Each may be empty: windows that another ledger took are unknown, and are compared with nothing.
    """

    rows: tuple[int, ...] = ()
    gaps_seconds: tuple[float, ...] = ()
    ends: tuple[datetime, ...] = ()


def past_windows(history: History, window_id: str, learned_from: Collection[str] | None) -> PastWindows:
    """Gather the windows that were taken beside `window_id`.

    Args:
        history: The model's ledger.
        window_id: The window that is looked at: taken again, it is not compared with itself.
        learned_from: Ids of the windows of the champion's training; None is all, where there is no champion.
    """
    taken = [
        record
        for record in history.latest_windows.values()
        if record.outcome not in SET_ASIDE and record.window.id != window_id
    ]
    learned = [record for record in taken if learned_from is None or record.window.id in learned_from]
    return PastWindows(
        rows=tuple(record.rows for record in learned),
        gaps_seconds=tuple(record.times.largest_gap_seconds for record in learned if record.times),
        ends=tuple(record.times.latest for record in taken if record.times),
    )
