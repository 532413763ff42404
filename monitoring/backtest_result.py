"""What came of a backtest, as figures: pure functions of each policy's ledger."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from monitoring.history import History
from monitoring.records import WindowRecord
from monitoring.verdicts import DriftStatus
from training.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestResult:
    """One policy's figures. Delays count windows from the one of the change, which is 0.

    Attributes:
        policy: Its name.
        timeline: Every window's record, oldest first.
        drifted: Windows judged DRIFTED.
        false_alarms: DRIFTED windows before the change; None where no change is given.
        windows_to_verdict: First DRIFTED window from the change on; None if there is none.
        windows_to_decision: First retraining decided on drift from the change on; None if there is none.
        trainings: Trainings that were decided and ended, the first model's among them.
        training_rows: Rows they would be trained on, before the contamination guard.
        training_seconds: Estimated from past trainings; None without any.
        held: How often each rule held back a training that was asked for.
    """

    policy: str
    timeline: tuple[WindowRecord, ...]
    quarantined: int
    drifted: int
    inconclusive: int
    false_alarms: int | None
    windows_to_verdict: int | None
    windows_to_decision: int | None
    trainings: int
    training_rows: int
    training_seconds: float | None
    held: dict[str, int]


def result_of(
    policy: str, history: History, *, change: int | None, seconds_each: float | None
) -> BacktestResult:
    """Count what a policy did; `change` is the place of the window that the change came with."""
    windows = history.windows
    drifted = [place for place, record in enumerate(windows) if _status(record) is DriftStatus.DRIFTED]
    decided = [
        place
        for place, record in enumerate(windows)
        if record.decision and record.decision.retrain and record.decision.trigger == "drift"
    ]
    trainings = history.trainings
    return BacktestResult(
        policy=policy,
        timeline=tuple(windows),
        quarantined=sum(record.outcome == "quarantined" for record in windows),
        drifted=len(drifted),
        inconclusive=sum(_status(record) is DriftStatus.INCONCLUSIVE for record in windows),
        false_alarms=None if change is None else sum(place < change for place in drifted),
        windows_to_verdict=_delay(drifted, change),
        windows_to_decision=_delay(decided, change),
        trainings=len(trainings),
        training_rows=sum(training.rows for training in trainings),
        training_seconds=None if seconds_each is None else seconds_each * len(trainings),
        held=dict(Counter(rule for record in windows if record.decision for rule in record.decision.held)),
    )


def change_place(changed_at: str, windows: Sequence[WindowRecord]) -> int:
    """Return the place of the window a change came with: named by its id, or by a time.

    A time means the first window whose median event time is not before it.

    Raises:
        ConfigurationError: It is neither, or no window is that late.
    """
    for place, record in enumerate(windows):
        if record.window.id == changed_at:
            return place
    moment = change_time(changed_at)
    for place, record in enumerate(windows):
        if record.event_time is not None and record.event_time >= moment:
            return place
    raise ConfigurationError(
        f"no window has event times from {changed_at} on",
        hint="--changed-at is a window's id, or a time within the source when --time-column is given",
    )


def change_time(changed_at: str) -> datetime:
    """Read a time in UTC.

    Raises:
        ConfigurationError: It is no ISO 8601 time.
    """
    try:
        moment = datetime.fromisoformat(changed_at)
    except ValueError as error:
        raise ConfigurationError(
            f"--changed-at {changed_at!r} is neither a window of the source nor an ISO 8601 time",
            hint="name a window as `floodmark status` does, or a time such as 2026-01-11T06:00:00",
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _status(record: WindowRecord) -> DriftStatus | None:
    return record.drift.status if record.drift else None


def _delay(places: list[int], change: int | None) -> int | None:
    return None if change is None else next((place - change for place in places if place >= change), None)
