"""The ledger: one order for everybody, and a claim that outlives only its owner's life."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from histories import START, bootstrap, judged, quarantined, scored, settled, trained
from infra.ledger import ENTRIES, SEGMENT_ENTRIES, Ledger, LedgerMovedError, owner
from infra.local_store import LocalStore
from monitoring.history import History
from monitoring.records import ClaimRecord, Entry, FailureRecord, Record, ReleaseRecord, RetrainRecord
from monitoring.verdicts import DriftStatus
from training.errors import ConfigurationError, RetryableError

HOUR = timedelta(hours=1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.of(LocalStore(tmp_path), "model")


def reopened(ledger: Ledger) -> Ledger:
    return Ledger(store=ledger.store, prefix=ledger.prefix)


@given(
    record=st.sampled_from(
        [
            bootstrap("a", retrain_on=("a",)),
            scored("b", DriftStatus.DRIFTED),
            quarantined("c"),
            trained("1", "a"),
            trained(None),
            judged("1"),
            settled("1"),
            ClaimRecord(step="window a"),
            FailureRecord(step="window a", error="S3 is down"),
            RetrainRecord(windows=("a",), reason="new pump"),
            ReleaseRecord(step="window a", reason="KeyboardInterrupt"),
        ]
    ),
    sequence=st.integers(1, 10**6),
)
def test_entries_survive_json(record: Record, sequence: int) -> None:
    entry = Entry(sequence=sequence, at=START, record=record)
    assert ENTRIES.validate_json(ENTRIES.dump_json(entry)) == entry


def test_what_is_appended_is_read_by_everybody_in_order(ledger: Ledger) -> None:
    history = ledger.append(ledger.load(), bootstrap("a"))
    history = ledger.append(history, bootstrap("b"))
    assert reopened(ledger).load() == ledger.load() == history
    assert [entry.sequence for entry in history.entries] == [1, 2]


def test_whoever_decided_on_an_older_history_cannot_write(ledger: Ledger) -> None:
    stale = ledger.load()
    ledger.append(stale, bootstrap("a"))
    with pytest.raises(LedgerMovedError):
        reopened(ledger).append(stale, bootstrap("b"))
    assert [record.window.id for record in ledger.load().windows] == ["a"]


def test_of_many_writers_exactly_one_wins(ledger: Ledger) -> None:
    empty = ledger.load()
    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(lambda name: _appends(reopened(ledger), empty, name), range(8)))
    assert wins.count(True) == 1
    assert len(ledger.load().entries) == 1


def _appends(ledger: Ledger, history: History, name: int) -> bool:
    try:
        ledger.append(history, bootstrap(str(name)))
    except LedgerMovedError:
        return False
    return True


HOST = owner().rsplit(" ", 2)[0]
CLAIM = ClaimRecord(step="window a")


def written_by(ledger: Ledger, writer: str, record: Record) -> History:
    """Append a record as another process would."""
    history = ledger.load()
    entry = Entry(sequence=history.next_sequence, at=datetime.now(UTC), record=record, owner=writer)
    key = f"{ledger.prefix}/{entry.sequence:08d}.json"
    assert ledger.store.create(key, ENTRIES.dump_json(entry))
    return ledger.load()


def living() -> str:
    parent = psutil.Process(os.getppid())
    return f"{HOST} {parent.pid} {parent.create_time():.2f}"


@pytest.mark.parametrize("lease", [HOUR, timedelta(0)])
def test_a_claim_keeps_others_away_while_its_process_lives_however_long(
    ledger: Ledger, lease: timedelta
) -> None:
    history = written_by(ledger, living(), CLAIM)
    with pytest.raises(RetryableError, match="window a is being worked on by"):
        ledger.claim(history, "window a", lease=lease, lane="windows")


def test_what_somebody_else_writes_does_not_end_a_claim(ledger: Ledger) -> None:
    written_by(ledger, living(), CLAIM)
    history = ledger.append(ledger.load(), judged("1"))
    with pytest.raises(RetryableError, match="window a is being worked on by"):
        ledger.claim(history, "window b", lease=HOUR, lane="windows")
    history = written_by(ledger, living(), bootstrap("a"))
    assert ledger.claim(history, "window b", lease=HOUR, lane="windows").open_claim("windows")


def test_the_claim_of_a_dead_process_is_taken_over(ledger: Ledger) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    history = written_by(ledger, f"{HOST} {dead.pid} 1.0", CLAIM)
    claimed = ledger.claim(history, "window a", lease=HOUR, lane="windows").open_claim("windows")
    assert claimed is not None
    assert claimed.owner == owner()


def test_a_recycled_process_id_is_not_mistaken_for_the_owner(ledger: Ledger) -> None:
    history = written_by(ledger, f"{HOST} {os.getppid()} 1.0", CLAIM)
    assert ledger.claim(history, "window a", lease=HOUR, lane="windows").open_claim("windows")


def test_the_claim_of_another_host_holds_until_its_lease_is_over(ledger: Ledger) -> None:
    history = written_by(ledger, "elsewhere 1 1.0", CLAIM)
    with pytest.raises(RetryableError, match="elsewhere"):
        ledger.claim(history, "window a", lease=HOUR, lane="windows")
    assert ledger.claim(history, "window a", lease=timedelta(0), lane="windows").open_claim("windows")


@pytest.mark.parametrize("end", [bootstrap("a"), ReleaseRecord(step="window a", reason="TerminationSignal")])
def test_a_finished_or_released_step_is_claimed_by_nobody(ledger: Ledger, end: Record) -> None:
    written_by(ledger, "elsewhere 1 1.0", CLAIM)
    history = written_by(ledger, "elsewhere 1 1.0", end)
    assert history.open_claim("windows") is None
    assert ledger.claim(history, "window b", lease=HOUR, lane="windows").open_claim("windows")


def test_a_damaged_entry_is_an_error_and_no_end_of_the_history(ledger: Ledger) -> None:
    ledger.append(ledger.load(), bootstrap("a"))
    ledger.store.create(f"{ledger.prefix}/00000002.json", b"{")
    with pytest.raises(ConfigurationError, match="00000002"):
        ledger.load()


@dataclass(frozen=True)
class ToldStore(LocalStore):
    """Remembers what was read."""

    reads: list[str] = field(default_factory=list)

    def read(self, key: str, *, version: str | None = None) -> bytes:
        self.reads.append(key)
        return super().read(key, version=version)


def test_a_long_history_is_read_in_few_calls_and_is_the_same_without_its_segments(tmp_path: Path) -> None:
    store = ToldStore(tmp_path)
    ledger = Ledger.of(store, "model")
    history = ledger.load()
    for number in range(2 * SEGMENT_ENTRIES + 7):
        history = ledger.append(history, bootstrap(str(number)))
    store.reads.clear()
    assert reopened(ledger).load() == history
    assert len(store.reads) == (2 + 1) + (7 + 1)
    first, second = sorted((tmp_path / f"{ledger.prefix}-segments").iterdir())
    second.unlink()  # one that a killed process did not come to write
    assert reopened(ledger).load() == history
    other = reopened(ledger)
    assert other.append(other.load(), bootstrap("one more")) == reopened(ledger).load()
    assert second.is_file()
    first.write_bytes(b"[")
    with pytest.raises(ConfigurationError, match="is not readable"):
        reopened(ledger).load()


@dataclass(frozen=True)
class FailingStore(LocalStore):
    """Takes no segments while `failing` is not empty."""

    failing: list[str] = field(default_factory=list)

    def create(self, key: str, data: bytes) -> bool:
        if self.failing and "-segments/" in key:
            raise RetryableError("the store is away")
        return super().create(key, data)


def test_an_entry_that_is_written_is_no_failure_because_its_segment_is_not(tmp_path: Path) -> None:
    store = FailingStore(tmp_path, failing=["yes"])
    ledger = Ledger.of(store, "model")
    history = ledger.load()
    for number in range(SEGMENT_ENTRIES):
        history = ledger.append(history, bootstrap(str(number)))
    assert reopened(ledger).load() == history
    store.failing.clear()
    ledger.append(history, bootstrap("one more"))
    assert (tmp_path / f"{ledger.prefix}-segments").is_dir()
