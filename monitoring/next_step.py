"""What to do next: a pure function of the ledger and of what the source lists.

Killed anywhere and run again, the loop comes to the same step, because every finished step is one
entry of the ledger and an unfinished one is none.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from monitoring.alerts import Message
from monitoring.arrivals import due
from monitoring.history import History
from monitoring.records import LANES, ClaimRecord, Lane, PromotionRecord, RetrainRecord, TrainingRecord
from monitoring.watch import shadowed
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Send one message about an incident."""

    message: Message

    def __str__(self) -> str:
        return f"alert {self.message.incident} {self.message.stage}"


Step = TakeWindow | Train | Judge | Settle | Notify


def lane_of(step: Step) -> Lane:
    """Return the lane of a step; the aliases follow a verdict of the gates in the lane that came to it."""
    match step:
        case Train() | Judge():
            return "training"
        case Settle(promotion=promotion) if promotion.by == "gates":
            return "training"
        case _:
            return "windows"


def next_step(
    history: History,
    listed: Sequence[Window],
    configuration: str = "",
    messages: Sequence[Message] = (),
    lanes: Collection[Lane] = LANES,
) -> Step | None:
    """Return the next step, oldest obligation first; None when nothing is left to do.

    A training or judging that failed lets the next window pass before it is tried again: the champion
    keeps scoring whatever fails behind it. `configuration` is a digest of how windows are read now, and
    `messages` are the due ones (`monitoring.alerts`): people hear of a verdict once the aliases follow it.
    With one of the `lanes`, only its steps are returned, and the aliases' in both.
    """
    promotion = history.unsettled_promotion()
    settle = Settle(promotion=promotion) if promotion else None
    tell = Notify(message=messages[0]) if messages and "windows" in lanes else None
    if tell and not history.failed_last(str(tell)) and (not settle or history.failed_last(str(settle))):
        return tell
    if settle:
        return settle
    owed = owed_training(history, listed) if "training" in lanes else None
    windows = due(history, listed, configuration) if "windows" in lanes else []
    if owed is not None and not (windows and history.failed_last(str(owed))):
        return owed
    return TakeWindow(window=windows[0]) if windows else None


def owed_training(history: History, listed: Sequence[Window]) -> Train | Judge | None:
    """Return the next step of the lane of trainings."""
    training = history.unjudged_training()
    return Judge(training=training) if training else _pending_training(history, listed)


def in_flight(history: History, listed: Sequence[Window]) -> str | None:
    """Say which training or candidate is under way; None when a new training may be decided.

    A training is under way from its decision until it ended, its candidate until its gates have judged it,
    and an undecided one until a person or its shadow has. A decided training whose windows are all gone is
    none.
    """
    if training := history.unjudged_training():
        return f"version {training.version} waits for its gates"
    if history.challenger:
        waits = "scores in shadow" if shadowed(history) else "waits for a person"
        return f"version {history.challenger} {waits}"
    pending = _pending_training(history, listed)
    return f"the {pending} is pending" if pending else None


def _pending_training(history: History, listed: Sequence[Window]) -> Train | None:
    """Return the training that was decided on, with those of its windows that are still as taken.

    A mute takes back what was decided before it, unless the training has begun: the next drifted window
    after the mute decides anew.
    """
    order = history.pending_order()
    if order is None:
        return None
    asked = order if isinstance(order, RetrainRecord) else order.decision
    if asked is None:
        return None
    latest, unchanged = history.latest_windows, {(window.id, window.fingerprint) for window in listed}
    taken = [latest[identifier].window for identifier in asked.windows]
    windows = tuple(version for version in taken if (version.id, version.fingerprint) in unchanged)
    if not windows:
        return None
    left_out = len(taken) - len(windows)
    reason = f"{asked.reason}, {left_out} of them since rewritten or gone" if left_out else asked.reason
    training, claim = Train(reason=reason, windows=windows), history.open_claim("training")
    begun = claim is not None and isinstance(claim.record, ClaimRecord) and claim.record.step == str(training)
    return None if history.muted_after(order) and not begun else training
