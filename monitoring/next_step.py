"""What to do next: a pure function of the ledger and of what the source lists.

Killed anywhere and run again, the loop comes to the same step, because every finished step is one
entry of the ledger and an unfinished one is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.history import History
from monitoring.records import PromotionRecord, TrainingRecord
from training.types import Window, WindowVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeWindow:
    """Check, score and judge the drift of one window."""

    window: Window

    def __str__(self) -> str:
        return f"window {self.window.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Train and register a candidate from these windows."""

    reason: str
    windows: tuple[WindowVersion, ...]

    def __str__(self) -> str:
        return f"training on {', '.join(window.id for window in self.windows)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Put a registered candidate through the gates."""

    training: TrainingRecord

    def __str__(self) -> str:
        return f"gates of version {self.training.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Let the registry's aliases follow a promotion record."""

    promotion: PromotionRecord

    def __str__(self) -> str:
        return f"aliases after version {self.promotion.version} was {self.promotion.outcome}"


Step = TakeWindow | Train | Judge | Settle


def next_step(history: History, listed: Sequence[Window]) -> Step | None:
    """Return the next step, oldest obligation first; None when nothing is left to do."""
    if promotion := history.unsettled_promotion():
        return Settle(promotion=promotion)
    if training := history.unjudged_training():
        return Judge(training=training)
    if (record := history.pending_decision()) and record.decision is not None:
        latest = history.latest_windows
        versions = tuple(latest[identifier].window for identifier in record.decision.windows)
        return Train(reason=record.decision.reason, windows=versions)
    due = history.due(listed)
    return TakeWindow(window=due[0]) if due else None
