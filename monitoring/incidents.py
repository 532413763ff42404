"""Incidents: what is wrong with a model, as a pure view over its ledger.

An incident lasts from the first sign of one trouble to the first sign of its end, however many windows
lie between. Nothing is stored about it: the same ledger always gives the same incidents with the same ids.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from monitoring.history import MOVES_CHAMPION, SET_ASIDE, History
from monitoring.records import (
    AlertRecord,
    ClaimRecord,
    Entry,
    FailureRecord,
    PromotionRecord,
    Record,
    ReleaseRecord,
    SnoozeRecord,
    TrainingRecord,
    WindowRecord,
)
from monitoring.verdicts import DriftStatus, DriftVerdict
from training.types import PromotionOutcome

Kind = Literal["drift", "alerts", "data", "training", "candidate", "champion", "step", "channel"]

FAILING_REPEATEDLY = 2
"""Failures of one kind of step, without a success between them, that make an incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One trouble from its first sign to its end.

    Attributes:
        id: The kind and the ledger entry that opened it; unique within a ledger.
        subject: What the trouble is with, where the kind has several: a version, a channel, a step's kind.
        entries: Places in the ledger of all its signs, the first first.
        windows: The windows among them.
        reason: What the newest sign says.
        since: When its first sign was recorded (UTC).
        resolved_at: When the sign of its end was recorded; None while it is open.
        resolution: What ended it.
    """

    id: str
    kind: Kind
    subject: str
    entries: tuple[int, ...]
    windows: tuple[str, ...]
    reason: str
    since: datetime
    resolved_at: datetime | None = None
    resolution: str = ""

    @property
    def open(self) -> bool:
        """Whether its end has not been seen yet."""
        return self.resolved_at is None

    @property
    def notice(self) -> bool:
        """Whether it tells of something done, which nobody has to end."""
        return self.kind == "champion"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    kind: Kind
    reason: str
    subject: str = ""
    window: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relief:
    """The end of a kind's incidents, or only of the one with a subject."""

    kind: Kind
    reason: str
    subject: str | None = None


def incidents(history: History, channels: Sequence[str] = ()) -> list[Incident]:
    """Return every incident, in the order of their first signs.

    A channel that is not among `channels`, the configured ones, is nobody's trouble any more.
    """
    found: list[Incident] = []
    running: dict[tuple[Kind, str], int] = {}  # places in `found` of what is open
    for entry, sign in _signs(history):
        if isinstance(sign, _Relief):
            for kind, subject in list(running):
                if kind == sign.kind and sign.subject in (None, subject):
                    place = running.pop((kind, subject))
                    found[place] = replace(found[place], resolved_at=entry.at, resolution=sign.reason)
        elif (place := running.get((sign.kind, sign.subject), -1)) >= 0:
            found[place] = _continued(found[place], entry, sign)
        else:
            running[sign.kind, sign.subject] = len(found)
            found.append(_opened(entry, sign))
    return [incident for incident in found if _counts(incident, channels)]


def open_incidents(history: History, channels: Sequence[str] = ()) -> list[Incident]:
    """Return the incidents whose end has not been seen."""
    return [incident for incident in incidents(history, channels) if incident.open]


def snoozed_until(history: History, incident: Incident, now: datetime) -> datetime | None:
    """Return when an incident's snooze ends; None without one, and once the incident has ended."""
    if not incident.open:
        return None
    ends = [
        entry.record.until
        for entry in history.entries
        if isinstance(entry.record, SnoozeRecord) and incident.id in entry.record.incidents
    ]
    return max(ends) if ends and max(ends) > now else None


def _opened(entry: Entry, sign: _Trouble) -> Incident:
    name = f"-{sign.subject}" if sign.kind == "channel" else ""  # several may fail in one entry
    return Incident(
        id=f"{sign.kind}-{entry.sequence}{name}",
        kind=sign.kind,
        subject=sign.subject,
        entries=(entry.sequence,),
        windows=(sign.window,) if sign.window else (),
        reason=sign.reason,
        since=entry.at,
    )


def _continued(incident: Incident, entry: Entry, sign: _Trouble) -> Incident:
    again = sign.window is None or sign.window in incident.windows
    windows = incident.windows if again else (*incident.windows, str(sign.window))
    return replace(incident, entries=(*incident.entries, entry.sequence), windows=windows, reason=sign.reason)


def _counts(incident: Incident, channels: Sequence[str]) -> bool:
    if incident.kind == "step":
        return len(incident.entries) >= FAILING_REPEATEDLY
    return incident.kind != "channel" or incident.subject in channels


def _signs(history: History) -> Iterator[tuple[Entry, _Trouble | _Relief]]:
    """Yield what each entry says of troubles, ends before beginnings."""
    claimed: dict[str, str] = {}
    for entry in history.entries:
        record = entry.record
        if isinstance(record, ClaimRecord):
            claimed[entry.owner] = record.step
            continue
        if isinstance(record, SnoozeRecord):
            continue  # it says nothing of any step
        step = claimed.pop(entry.owner, None)
        if step is not None and not isinstance(record, FailureRecord | ReleaseRecord):
            yield entry, _Relief(kind="step", subject=kind_of_step(step), reason=f"{step} succeeded")
        for sign in _signs_of(record):
            yield entry, sign


def kind_of_step(step: str) -> str:
    """Return a step's first word: what it works on differs from try to try, as a training's windows do."""
    return step.partition(" ")[0]


def _signs_of(record: Record) -> Iterator[_Trouble | _Relief]:
    match record:
        case WindowRecord():
            yield from _window(record)
        case TrainingRecord(outcome="failed"):
            yield _Trouble(kind="training", reason=str(record.error))
        case TrainingRecord():
            made = f"version {record.version} was registered"
            yield _Relief(kind="training", reason=made)
            yield _Relief(kind="candidate", reason=made)
        case PromotionRecord():
            yield from _promotion(record)
        case FailureRecord():
            reason = f"{record.step}: {record.error}"
            yield _Trouble(kind="step", subject=kind_of_step(record.step), reason=reason)
        case AlertRecord():
            for outcome in record.outcomes:
                if outcome.delivered:
                    yield _Relief(kind="channel", subject=outcome.channel, reason="it answers again")
                else:
                    yield _Trouble(kind="channel", subject=outcome.channel, reason=outcome.answer)


def _window(record: WindowRecord) -> Iterator[_Trouble | _Relief]:
    identifier = record.window.id
    yield _Relief(kind="champion", reason=f"window {identifier} was taken")
    yield _Relief(kind="step", subject="window", reason=f"window {identifier} was taken")
    if record.outcome in SET_ASIDE:
        yield _Trouble(kind="data", reason=f"{record.outcome}: {record.reason}", window=identifier)
        return
    yield _Relief(kind="data", reason=f"window {identifier} is valid")
    if record.drift is not None:
        yield from _verdict(record.drift, identifier)


def _verdict(drift: DriftVerdict, window: str) -> Iterator[_Trouble | _Relief]:
    """More alerts than unchanged rows would bring are a trouble of their own, unless drift explains them."""
    alerts = next((test for test in drift.tests if test.test == "alerts"), None)
    over = alerts is not None and alerts.status is DriftStatus.DRIFTED
    drifted = drift.status is DriftStatus.DRIFTED
    if drift.status is DriftStatus.STABLE:
        yield _Relief(kind="drift", reason=f"window {window} is STABLE")
    if drifted or (alerts is not None and alerts.status is DriftStatus.STABLE):
        ended = "drifted" if drifted else "has no more alerts than usual"
        yield _Relief(kind="alerts", reason=f"window {window} {ended}")
    if drifted:
        yield _Trouble(kind="drift", reason=drift.reason, window=window)
    elif over and alerts is not None:
        yield _Trouble(kind="alerts", reason=alerts.reason, window=window)


def _promotion(record: PromotionRecord) -> Iterator[_Trouble | _Relief]:
    told = f"version {record.version} was {record.outcome.value} by {record.by}"
    if record.outcome is PromotionOutcome.ROLLED_BACK:
        told = f"version {record.from_version} was rolled back to version {record.version} by {record.by}"
    if record.outcome is PromotionOutcome.PUT_BACK:
        yield _Trouble(kind="champion", subject=record.version, reason=record.reason)
        return
    if record.shadow:  # nobody has to decide
        return
    if record.outcome not in MOVES_CHAMPION:
        yield _Relief(kind="candidate", reason=told)
        yield _Trouble(kind="candidate", subject=record.version, reason=f"{told}: {record.reason}")
        return
    ended: tuple[Kind, ...] = ("drift", "alerts", "training", "candidate", "champion", "step")
    for kind in ended:
        yield _Relief(kind=kind, reason=told)
    if record.by != "gates" or record.outcome is PromotionOutcome.ROLLED_BACK:
        yield _Trouble(kind="champion", subject=record.version, reason=f"{told}: {record.reason}")
