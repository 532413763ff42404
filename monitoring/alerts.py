"""Which messages about incidents are due, and what they say: pure, from the ledger and the time.

An incident sends one message when it opens, one when it is still open `escalate_after` windows later, and
one when it ends. What was sent is in the ledger, so a ledger that is read again sends nothing again. A
process that is killed between sending and recording sends a message twice, under the same `Message.id`.
"""

import shlex
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args
from urllib.parse import quote

from monitoring.history import History
from monitoring.incidents import Incident, Kind, incidents, snoozed_until
from monitoring.records import AlertRecord, PromotionRecord, WindowRecord
from training.types import PromotionOutcome

Stage = Literal["opened", "escalated", "resolved"]

ATTEMPTS = 4
"""How often a message is offered to one channel: once, and again with later windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a model lives: what links and commands name.

    Attributes:
        pages: Where the reports are, a URL or a place in the store.
        source: Where the windows are; None where it is not known.
        reading: The options of `floodmark run` by which windows are read.
    """

    model: str
    home: str
    pages: str
    source: str | None = None
    reading: tuple[str, ...] = ()

    def command(self, *words: str) -> str:
        """Return a `floodmark` command for this model, ready for a shell."""
        return shlex.join(["floodmark", *words, "--home", self.home, "--model", self.model])

    def page(self, window: str) -> str:
        """Return the address of a window's report."""
        path = f"{self.model}/{window}.html"
        return f"{self.pages.rstrip('/')}/{quote(path) if self.pages.startswith('http') else path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a person is told about one incident at one stage.

    Attributes:
        id: The same for the same incident and stage, however often it is sent; receivers drop repetitions.
        text: What happened, with its reason, in a sentence.
        link: The page of the candidate's gates, else of the newest window that it is about; None where there
            is no such page.
        command: What to run next.
        channels: Where it goes.
    """

    id: str
    model: str
    incident: str
    kind: Kind | Literal["test"]
    stage: Stage | Literal["test"]
    text: str
    since: datetime
    resolved_at: datetime | None
    windows: tuple[str, ...]
    link: str | None
    command: str
    channels: tuple[str, ...]


def due_messages(
    history: History, site: Site, *, channels: Sequence[str], escalate_after: int, now: datetime
) -> list[Message]:
    """Return the messages that are to be sent now, the oldest incident first; none without channels.

    A channel that failed rests until another window was taken, so a dead one costs one time-out a window.
    """
    if not channels:
        return []
    sent, messages = _Sent(history), []
    for incident in incidents(history, channels):
        snoozed = snoozed_until(history, incident, now) is not None
        for stage in get_args(Stage):
            due = tuple(
                channel
                for channel in channels
                if channel != incident.subject
                and not snoozed
                and sent.fits(incident, stage, channel, escalate_after)
                and sent.may_try(incident, stage, channel)
            )
            if due:
                messages.append(compose(history, incident, stage, site, due))
    return messages


class _Sent:
    """The alert records of a ledger, by message and channel."""

    def __init__(self, history: History) -> None:
        self.windows = [e.sequence for e in history.entries if isinstance(e.record, WindowRecord)]
        self.tries: dict[tuple[str, str, str], list[tuple[int, bool]]] = defaultdict(list)
        self.newest: dict[str, tuple[int, bool]] = {}
        for entry in history.entries:
            if isinstance(entry.record, AlertRecord):
                for outcome in entry.record.outcomes:
                    tried = (entry.sequence, outcome.delivered)
                    key = (entry.record.incident, entry.record.stage, outcome.channel)
                    self.tries[key].append(tried)
                    self.newest[outcome.channel] = tried

    def fits(self, incident: Incident, stage: Stage, channel: str, escalate_after: int) -> bool:
        """Whether the incident stands so that this channel should hear of the stage."""
        opened = self.tries[incident.id, "opened", channel]
        match stage:
            case "opened":
                return incident.open or (incident.notice and bool(opened))
            case "escalated":
                lasting = incident.open and not incident.notice and bool(opened)
                return lasting and self._windows_since(opened[-1][0]) >= escalate_after
            case "resolved":
                return not incident.open and not incident.notice and bool(opened)

    def may_try(self, incident: Incident, stage: Stage, channel: str) -> bool:
        """Whether it was not delivered yet, may be offered again, and the channel does not rest."""
        tries = self.tries[incident.id, stage, channel]
        newest, delivered = self.newest.get(channel, (0, True))
        rests = not delivered and self._windows_since(newest) == 0
        return not any(done for _, done in tries) and len(tries) < ATTEMPTS and not rests

    def _windows_since(self, sequence: int) -> int:
        return len(self.windows) - bisect_right(self.windows, sequence)


def compose(
    history: History, incident: Incident, stage: Stage, site: Site, channels: tuple[str, ...] = ()
) -> Message:
    """Put a message into words."""
    until = incident.resolved_at or datetime.max.replace(tzinfo=UTC)
    taken = [
        entry.record.window.id
        for entry in history.entries
        if isinstance(entry.record, WindowRecord) and entry.at <= until
    ]
    windows = [*taken[-1:], *incident.windows][-1:]
    pages = _gate_pages(history, incident) or [name for name in windows if _has_page(history, name)]
    return Message(
        id=f"{site.model}/{incident.id}/{stage}/{incident.since:%Y%m%dT%H%M%S.%fZ}",
        model=site.model,
        incident=incident.id,
        kind=incident.kind,
        stage=stage,
        text=_text(incident, stage),
        since=incident.since,
        resolved_at=incident.resolved_at,
        windows=incident.windows,
        link=site.page(pages[-1]) if pages else None,
        command=next_command(history, incident, site),
        channels=channels,
    )


def _gate_pages(history: History, incident: Incident) -> list[str]:
    if incident.kind != "candidate":
        return []
    signs = [history.entries[place - 1].record for place in incident.entries]
    return [sign.page for sign in signs if isinstance(sign, PromotionRecord) and sign.page]


def _has_page(history: History, window: str) -> bool:
    record = history.latest_windows.get(window)
    return record is not None and record.has_page


def headline(incident: Incident) -> str:
    """Say in a sentence what is wrong, with the newest reason."""
    match incident.kind:
        case "drift":
            what = f"{_windows(incident)} drifted"
        case "alerts":
            what = f"{_windows(incident)} brought more alerts than usual, without drift"
        case "data":
            what = f"{_windows(incident)} could not be used"
        case "training":
            what = _times(len(incident.entries), "a training failed", "trainings failed")
        case "candidate":
            what = f"version {incident.subject} was not promoted, and a person may decide"
        case "champion":
            what = "the champion was moved"
        case "step":
            what = f"the step {incident.subject} failed {len(incident.entries)} times"
        case "channel":
            what = f"the alert channel {incident.subject} does not take messages"
    return f"{what}: {incident.reason}"


def promote_command(site: Site, version: str, *, refused: bool) -> str:
    """Return what a person runs to promote a candidate that its gates did not."""
    return site.command("promote", version, *(["--force"] if refused else []), "--reason", "TEXT")


def next_command(history: History, incident: Incident, site: Site) -> str:
    """Return what a person runs next about an incident."""
    match incident.kind:
        case "data" | "step":
            return site.command("run", site.source or "SOURCE", *site.reading)
        case "candidate":
            refused = any(
                isinstance(record := history.entries[place - 1].record, PromotionRecord)
                and record.outcome is PromotionOutcome.REFUSED
                for place in incident.entries
            )
            return promote_command(site, incident.subject, refused=refused)
        case "champion":
            return site.command("history")
        case "channel":
            return site.command("alerts", "test")
        case _:
            return site.command("status")


def _text(incident: Incident, stage: Stage) -> str:
    told = headline(incident)
    match stage:
        case "opened":
            return told[0].upper() + told[1:]
        case "escalated":
            return f"Still open: {told}"
        case "resolved":
            return f"Resolved, {incident.resolution}: {told}"


def _windows(incident: Incident) -> str:
    first, last = incident.windows[0], incident.windows[-1]
    many = f"{len(incident.windows)} windows from {first} to {last}"
    return f"window {first}" if first == last else many


def _times(count: int, once: str, many: str) -> str:
    return once if count == 1 else f"{count} {many}"
