"""The decision after one window, as the loop and a backtest take it: gathered from the ledger, then pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pandas as pd

from monitoring.frames import utc_times
from monitoring.history import History
from monitoring.next_step import in_flight
from monitoring.policy import JUDGED, decide_retraining, newest
from monitoring.records import WindowRecord
from monitoring.retraining import RetrainingInputs, RetrainingPolicy, WindowOutlook
from monitoring.verdicts import DriftStatus
from training.types import Window


def with_decision(
    record: WindowRecord,
    history: History,
    policy: RetrainingPolicy,
    *,
    listed: Sequence[Window],
    now: datetime,
) -> WindowRecord:
    """Return the record of a window just taken together with the decision that follows from it.

    `listed` are the source's windows as they are now: a training that was decided on windows that are
    gone is not waited for.
    """
    inputs = retraining_inputs(record, history, policy, listed=listed, now=now)
    return replace(record, decision=decide_retraining(inputs, policy))


def retraining_inputs(
    record: WindowRecord,
    history: History,
    policy: RetrainingPolicy,
    *,
    listed: Sequence[Window],
    now: datetime,
) -> RetrainingInputs:
    """Gather what a decision looks at. `history` ends before the window's own record."""
    mute = history.mute(now)
    day = (record.event_time or now).astimezone(UTC).date()
    since_training, model_age = (
        history.windows_since(entry) for entry in (history.last_training, history.champion_since)
    )
    return RetrainingInputs(
        windows=_first_windows(record, history)
        if history.champion is None
        else _scored(record, history, policy),
        champion=history.champion,
        now=now,
        day=day,
        since_training=None if since_training is None else since_training + 1,
        model_age=None if model_age is None else model_age + 1,
        trainings_today=history.training_days().count(day),
        in_flight=in_flight(history, listed),
        muted_until=mute.until if mute else None,
        mute_reason=mute.reason if mute else "",
    )


def _first_windows(record: WindowRecord, history: History) -> tuple[WindowOutlook, ...]:
    valid = [*history.bootstrap_windows(), record]
    return tuple(WindowOutlook(id=item.window.id, rows=item.rows, status=None) for item in valid)


def _scored(record: WindowRecord, history: History, policy: RetrainingPolicy) -> tuple[WindowOutlook, ...]:
    """Return what the triggers can ask for, and no more: it is stored with every window."""
    status = record.drift.status if record.drift else None
    own = WindowOutlook(id=record.window.id, rows=record.rows, status=status)
    since = [*history.outlooks_since_training(), own]
    judged = [outlook for outlook in since if outlook.status in JUDGED]
    drifted = [outlook for outlook in since if outlook.status is DriftStatus.DRIFTED]
    kept = (
        *since[-policy.of :],
        *newest(judged, at_least=policy.bootstrap_windows, min_rows=policy.min_rows),
        *newest(drifted, at_least=0, min_rows=policy.min_rows),
    )
    names = {outlook.id for outlook in kept}
    return tuple(outlook for outlook in since if outlook.id in names)


def event_time(frame: pd.DataFrame, time_column: str | None, now: datetime) -> datetime | None:
    """Return the median of a window's times, at most `now`; they have passed the data contract."""
    if time_column is None:
        return None
    middle = pd.Timestamp(utc_times(frame[time_column]).median())
    return None if pd.isna(middle) else min(middle.to_pydatetime(warn=False), now)
