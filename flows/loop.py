"""The flow `floodmark`: the whole loop, one ledger entry a step, until nothing is left to do."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from prefect import flow

from flows import interrupt
from flows.alerting import due
from flows.events import announce
from flows.installation import Installation, open_installation
from flows.judge import judge
from flows.metrics import write_textfile
from flows.monitor import monitor
from flows.notify import notify
from flows.reconcile import reconcile
from flows.retrain import retrain
from flows.settle import settle
from flows.waiting import Waiting
from infra.ledger import LedgerMovedError
from infra.settings import Settings
from infra.source import Source
from monitoring.arrivals import rewritten
from monitoring.history import History
from monitoring.next_step import Judge, Notify, Settle, Step, TakeWindow, Train, lane_of, next_step
from monitoring.records import LANES, FailureRecord, Lane, Record, ReleaseRecord, WindowRecord
from training.errors import FloodmarkError, RetryableError
from training.types import Window, WindowVersion

GIVE_UP_AFTER = 3
"""Failures of one window that nobody foresaw, after which it is skipped."""

Report = Callable[[Step | None, Record | None], None]
"""Called with a step before it is taken, and with its record after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the loop stands when nothing is left to do.

    `rewritten` windows are not taken twice, `settling` ones not yet.
    """

    history: History
    rewritten: list[str]
    ignored: list[str]
    settling: list[str]


@flow(name="floodmark", flow_run_name="floodmark {settings.model} on {source}")
def run_loop(
    settings: Settings, source: str, *, follow: bool, report: Report, lanes: Collection[Lane] = LANES
) -> Standing:
    """Take every step of the lanes that the ledger and the source ask for; with `follow`, wait for more.

    Raises:
        RetryableError: A step failed in passing; the ledger says which, and the next run takes it again.
    """
    installation = open_installation(settings)
    opened = installation.source(source)
    queue = installation.queue(source) if follow and "windows" in lanes else None
    waiting = Waiting(opened, queue, partial(tell, report))
    while True:
        interrupt.pause()
        try:
            history, listed = reconcile(installation, partial(report, None)), opened.look()
            write_textfile(settings, history)
            messages = due(settings, history, opened.store.url)
            step = next_step(history, listed, settings.reading, messages, lanes)
            if isinstance(step, Train):  # whose windows must all be there still
                step = next_step(history, opened.look(full=True), settings.reading, messages, lanes)
            if step is not None:
                take(installation, opened, history, step, report)
            elif follow:
                waiting.wait(settings.follow_seconds)
            else:
                return Standing(
                    history=history,
                    rewritten=rewritten(history, listed),
                    ignored=opened.ignored,
                    settling=opened.settling,
                )
        except LedgerMovedError:
            continue
        except RetryableError as error:
            if not follow:
                raise
            tell(report, str(error))
            interrupt.pause(settings.follow_seconds)


def tell(report: Report, what: str) -> None:
    """Show what holds the loop up; the ledger need not know."""
    report(None, FailureRecord(step="the loop waits and tries again", error=what))


def take(installation: Installation, source: Source, history: History, step: Step, report: Report) -> None:
    """Claim a step, perform it, and append what became of it."""
    settings, ledger = installation.settings, installation.ledger
    lane, lease = lane_of(step), timedelta(seconds=settings.lease_seconds)
    history = ledger.claim(history, str(step), lease=lease, lane=lane)
    report(step, None)
    try:
        record = perform(settings, source.store.url, step)
    except Exception as error:
        failure = FailureRecord(
            step=str(step),
            error=f"{type(error).__name__}: {error}",
            unexpected=not isinstance(error, FloodmarkError),
        )
        history = ledger.conclude(lane, failure)
        report(step, failure)
        if isinstance(step, TakeWindow) and history.unexpected_failures(str(step)) >= GIVE_UP_AFTER:
            ledger.append(history, skipped_record(settings, step.window, failure))
        write_textfile(settings, history)
        if not isinstance(step, Notify):
            send_due(installation, source, report)
        raise
    except BaseException as told:  # cancelled, out of time, interrupted: it is owed, and anybody may take it
        with suppress(Exception):
            ledger.conclude(lane, ReleaseRecord(step=str(step), reason=type(told).__name__))
        raise
    if lane == "windows":  # what was decided on an older history is decided anew
        ledger.append(history, record)
    else:
        ledger.conclude(lane, record)
    announce(settings, record)
    report(step, record)


def send_due(installation: Installation, source: Source, report: Report) -> None:
    """Send what is due before a failure ends the run; that failure is raised, and none of these hides it."""
    with suppress(Exception):
        while messages := due(installation.settings, history := installation.ledger.load(), source.store.url):
            take(installation, source, history, Notify(message=messages[0]), report)


def skipped_record(settings: Settings, window: Window, failure: FailureRecord) -> WindowRecord:
    """Set a window aside that fails again and again in a way nobody foresaw, so that the next is taken."""
    return WindowRecord(
        window=WindowVersion(id=window.id, fingerprint=window.fingerprint),
        digest="",
        rows=0,
        outcome="skipped",
        reason=f"failed {GIVE_UP_AFTER} times: {failure.error}",
        configuration=settings.reading,
    )


def perform(settings: Settings, source: str, step: Step) -> Record:
    """Run the flow of a step."""
    match step:
        case TakeWindow(window=window):
            return monitor(settings, source, window)
        case Train(reason=reason, windows=windows):
            return retrain(settings, source, reason, windows)
        case Judge(training=training):
            return judge(settings, source, training)
        case Settle(promotion=promotion):
            return settle(settings, promotion)
        case Notify(message=message):
            return notify(settings, message)
