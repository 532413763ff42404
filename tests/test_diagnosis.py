"""What the doctor concludes from facts: every kind of trouble is told, with its way out."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring import diagnosis
from monitoring.diagnosis import Deployment, Finding, Pool, Severity
from monitoring.history import History
from monitoring.records import (
    AlertRecord,
    Entry,
    FailureRecord,
    PromotionRecord,
    Record,
    ReleaseRecord,
    SettledRecord,
    WindowRecord,
)
from monitoring.retraining import RetrainingPolicy
from training.types import PromotionOutcome, WindowVersion

START = datetime(2026, 1, 5, tzinfo=UTC)
NAMES = ("floodmark-monitor/pump", "floodmark-retrain/pump")


def history_of(*records: Record) -> History:
    return History(
        entries=tuple(
            Entry(sequence=place, at=START + timedelta(hours=place), record=record, owner="here")
            for place, record in enumerate(records, 1)
        )
    )


def window(name: str) -> WindowRecord:
    version = WindowVersion(id=name, fingerprint=name)
    return WindowRecord(window=version, digest=name, rows=10, outcome="scored", reason="valid")


PROMOTED = PromotionRecord(
    version="1", from_version=None, by="gates", outcome=PromotionOutcome.PROMOTED, reason="passed"
)
FAILED = FailureRecord(step="window b", error="RetryableError: S3 does not answer")
TOLD = AlertRecord(incident="step-2", stage="opened", outcomes=())


def told(finding: Finding) -> tuple[str, str]:
    return finding.severity.value, finding.message


def test_the_newest_failure_is_told_until_something_else_happened() -> None:
    assert told(diagnosis.last_step(history_of())) == ("warning", "nothing has happened yet")
    failing = diagnosis.last_step(history_of(window("a"), FAILED, TOLD, FAILED, TOLD))
    assert told(failing) == (
        "fault",
        "window b failed at 2026-01-05 04:00 UTC, 2 times so: RetryableError: S3 does not answer",
    )
    assert diagnosis.last_step(history_of(FAILED, window("b"))).severity is Severity.SOUND
    released = ReleaseRecord(step="window b", reason="CancelledRun")
    assert diagnosis.last_step(history_of(FAILED, released)).severity is Severity.FAULT


def test_windows_that_wait_are_a_fault_once_none_was_taken_for_too_long() -> None:
    taken, day = history_of(window("a")), timedelta(days=1)
    assert told(diagnosis.waiting(taken, [], START + 3 * day, day)) == (
        "sound",
        "no window waits; the newest was taken at 2026-01-05 01:00 UTC",
    )
    assert diagnosis.waiting(taken, ["b", "c"], START + timedelta(hours=2), day).severity is Severity.SOUND
    assert told(diagnosis.waiting(taken, ["b", "c"], START + 3 * day, day)) == (
        "fault",
        "2 windows wait, the first is b, and none was taken since 2026-01-05 01:00 UTC",
    )
    assert diagnosis.waiting(history_of(), ["b"], START, day).severity is Severity.FAULT


def test_a_model_older_than_its_policy_allows_is_a_fault() -> None:
    past = history_of(PROMOTED, SettledRecord(version="1"), window("a"), window("b"), window("c"))
    assert diagnosis.model_age(past, RetrainingPolicy()).severity is Severity.SOUND
    assert diagnosis.model_age(past, RetrainingPolicy(max_age_windows=3)).severity is Severity.SOUND
    assert told(diagnosis.model_age(past, RetrainingPolicy(max_age_windows=2))) == (
        "fault",
        "champion 1 is 3 windows old; [retraining] max_age_windows is 2",
    )
    assert diagnosis.model_age(history_of(), RetrainingPolicy()).severity is Severity.WARNING


def test_a_ledger_and_a_registry_that_belong_to_others_are_found() -> None:
    settled = history_of(PROMOTED, SettledRecord(version="1"))
    assert diagnosis.agreement(history_of(), None, [], "here").severity is Severity.SOUND
    assert diagnosis.agreement(settled, "1", ["1"], "here").severity is Severity.SOUND
    assert (
        diagnosis.agreement(history_of(PROMOTED), None, ["1"], "here").severity is Severity.SOUND
    )  # not yet
    assert diagnosis.agreement(history_of(), "1", ["1"], "here").severity is Severity.FAULT
    assert diagnosis.agreement(settled, "2", ["2"], "here").severity is Severity.FAULT
    assert diagnosis.agreement(settled, None, [], "here").severity is Severity.FAULT
    assert told(diagnosis.agreement(settled, "2", ["1", "2"], "here")) == (
        "warning",
        "the alias champion is at 2, the ledger's at 1",
    )


@given(free=st.integers(0, 2**42), more=st.integers(0, 2**42))
def test_less_space_is_never_judged_better(free: int, more: int) -> None:
    total, order = 2**43, list(Severity)
    less, rather_more = (diagnosis.space("/", free + add, total).severity for add in (0, more))
    assert order.index(less) >= order.index(rather_more)


@pytest.mark.parametrize(
    ("free", "total", "severity"),
    [(0, 2**40, "fault"), (2**30, 2**40, "warning"), (2**31, 2**40, "sound"), (2**29, 2**31, "sound")],
)
def test_space_is_judged_by_share_and_by_bytes(free: int, total: int, severity: str) -> None:
    assert diagnosis.space("/", free, total).severity.value == severity


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_is_off_either_way_is_told(sign: int) -> None:
    assert diagnosis.clock("S3", sign * timedelta(seconds=20)).severity is Severity.SOUND
    assert told(diagnosis.clock("S3", sign * timedelta(minutes=4))) == (
        "warning",
        "this machine's clock and that of S3 are 240 s apart",
    )


def deployed(
    *, paused: bool = False, active: tuple[str, ...] = (), inactive: tuple[str, ...] = ()
) -> Deployment:
    return Deployment(paused=paused, active_schedules=active, inactive_schedules=inactive)


def test_schedules_that_are_missing_paused_or_others_are_told() -> None:
    hourly = "0 * * * *"
    wanted = {name: [hourly] for name in NAMES}

    def judged(found: Deployment | None) -> tuple[str, str]:
        first, second = diagnosis.schedules(wanted, {NAMES[0]: deployed(active=(hourly,)), NAMES[1]: found})
        assert first.severity is Severity.SOUND
        return told(second)

    assert judged(None) == ("fault", "floodmark-retrain/pump is missing")
    assert judged(deployed(paused=True, active=(hourly,))) == ("fault", "floodmark-retrain/pump is paused")
    assert judged(deployed(inactive=(hourly,))) == ("fault", "floodmark-retrain/pump is paused")
    assert judged(deployed()) == ("fault", "floodmark-retrain/pump has no schedule")
    assert judged(deployed(active=("1 * * * *",))) == (
        "warning",
        "floodmark-retrain/pump runs at 1 * * * *, not at 0 * * * *",
    )
    assert judged(deployed(active=(hourly, "1 1 * * *")))[0] == "sound"  # a person's own is theirs
    (finding,) = diagnosis.schedules({NAMES[1]: []}, {NAMES[1]: deployed()})
    assert told(finding) == ("sound", "floodmark-retrain/pump runs at events")


def test_pools_without_a_living_worker_are_told() -> None:
    minute = timedelta(minutes=1)

    def judged(pool: Pool | None) -> tuple[str, str]:
        (finding,) = diagnosis.workers({"gpu": pool}, minute)
        return told(finding)

    assert judged(None) == ("fault", "gpu is missing")
    assert judged(Pool(paused=True, newest_heartbeat=minute / 2)) == ("fault", "gpu is paused")
    assert judged(Pool(paused=False, newest_heartbeat=None)) == ("fault", "gpu has no worker")
    assert judged(Pool(paused=False, newest_heartbeat=2 * minute)) == (
        "fault",
        "gpu: no worker was heard of for 120 s",
    )
    assert judged(Pool(paused=False, newest_heartbeat=minute / 2)) == ("sound", "gpu has a worker")


@given(st.lists(st.sampled_from(Severity)))
def test_the_worst_finding_decides_and_nothing_found_is_a_fault(severities: list[Severity]) -> None:
    found = [Finding(check="c", severity=severity, message="m") for severity in severities]
    for severity in (Severity.FAULT, Severity.WARNING, Severity.SOUND):
        if severity in severities or not severities:
            assert diagnosis.worst(found) is severity
            return
