"""The ledger in an object store: one object an entry, numbered without holes, created exclusively.

Exclusive creation makes every append a compare-and-set on the whole history: who decided on an older
history cannot write (S3 `If-None-Match`, a hard link on disk). The newest claim, until its owner writes
again, is the lock of its lane; there is no other.

Every hundred entries are also packed into one object, a segment, so that a process which starts reads a
long history in few calls. Segments repeat what is written and may be missing.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError

from infra.object_store import ObjectNotFoundError, ObjectStore
from monitoring.history import History
from monitoring.records import ClaimRecord, Entry, Lane, PromotionRecord, Record
from training.errors import ConfigurationError, RetryableError

T = TypeVar("T")

ENTRIES = TypeAdapter(Entry)
SEGMENTS = TypeAdapter(tuple[Entry, ...])
SEGMENT_ENTRIES = 100


class LedgerMovedError(RetryableError):
    """Another process wrote first: what was decided on the older history must be decided again."""


class ClaimLostError(RetryableError):
    """Another process has taken over what this one was at work on."""


@dataclass(slots=True)
class Ledger:
    """One model's ledger under `prefix` of a store."""

    store: ObjectStore
    prefix: str
    _entries: list[Entry] = field(default_factory=list)
    _segments: int = 0

    @classmethod
    def of(cls, store: ObjectStore, model: str) -> "Ledger":
        """Return the ledger of a model, at its place in the store."""
        return cls(store=store, prefix=f"state/{model}/ledger")

    def load(self) -> History:
        """Return the history as it is stored now; entries once read are never read again.

        Raises:
            ConfigurationError: An entry is damaged, or of a format that this version does not know.
        """
        self._load_segments()
        while entry := self._read(self._key(len(self._entries) + 1), ENTRIES):
            self._entries.append(entry)
        return History(entries=tuple(self._entries))

    def _load_segments(self) -> None:
        """Read the segments that begin where the known entries end."""
        while len(self._entries) == self._segments * SEGMENT_ENTRIES:
            segment = self._read(self._segment_key(self._segments + 1), SEGMENTS)
            if segment is None:
                return
            self._entries += segment
            self._segments += 1

    def _read(self, key: str, kind: TypeAdapter[T]) -> T | None:
        """Read one object; None only where the store is certain that there is none."""
        try:
            return kind.validate_json(self.store.read(key))
        except ObjectNotFoundError:
            return None
        except ValidationError as error:
            raise ConfigurationError(
                f"the ledger entry {key} in {self.store.url} is not readable: {error}",
                hint="restore it from a backup, or use the version of Floodmark that wrote it",
            ) from error

    def append(self, history: History, record: Record) -> History:
        """Write `record` as the next entry of `history`.

        Raises:
            LedgerMovedError: The stored history is longer than `history` by now; nothing was written.
        """
        entry = Entry(sequence=history.next_sequence, at=datetime.now(UTC), record=record, owner=owner())
        if not self.store.create(self._key(entry.sequence), ENTRIES.dump_json(entry, indent=2)):
            raise LedgerMovedError(
                f"entry {entry.sequence} of {self.store.url}/{self.prefix} was written by another process",
                hint="nothing was overwritten; run the same command again",
            )
        history = History(entries=(*history.entries, entry))
        self._pack(history)
        return history

    def _pack(self, history: History) -> None:
        """Write the segments that are full and were not there yet; the next append tries again."""
        with suppress(RetryableError):  # the entry itself is written
            while len(history.entries) >= (self._segments + 1) * SEGMENT_ENTRIES:
                first = self._segments * SEGMENT_ENTRIES
                segment = SEGMENTS.dump_json(history.entries[first : first + SEGMENT_ENTRIES])
                self.store.create(self._segment_key(self._segments + 1), segment)
                self._segments += 1

    def conclude(self, lane: Lane, record: Record) -> History:
        """Append what became of a claimed step of a lane, behind what others wrote in the meantime.

        Raises:
            ClaimLostError: The claim is another process's by now; nothing was written.
            RetryableError: The gates compared with a version that is the champion no more.
        """
        while True:
            history = self.load()
            held = history.open_claim(lane)
            if held is None or held.owner != owner():
                raise ClaimLostError(
                    f"the claim on the ledger's lane of {lane} was taken over by another process",
                    hint="what it did is not recorded; the process that took over does it again",
                )
            if isinstance(record, PromotionRecord) and record.from_version != history.champion:
                raise RetryableError(
                    f"the champion moved from {record.from_version} to {history.champion} while version"
                    f" {record.version} was compared with it",
                    hint="nothing was promoted; the next run judges it again",
                )
            with suppress(LedgerMovedError):
                return self.append(history, record)

    def claim(self, history: History, step_name: str, *, lease: timedelta, lane: Lane) -> History:
        """Claim a step, taking over a claim on its lane whose owner is gone.

        Raises:
            RetryableError: Another living process holds the newest claim.
        """
        held = history.open_claim(lane)
        if held is not None and held.owner != owner():
            age = datetime.now(UTC) - held.at
            if _is_alive(held.owner, age, lease):
                step = held.record.step if isinstance(held.record, ClaimRecord) else ""
                raise RetryableError(
                    f"{step} is being worked on by process {held.owner} since {age.total_seconds():.0f} s",
                    hint=f"wait for it; a lost host's claim ends after {lease.total_seconds():.0f} s",
                )
        return self.append(history, ClaimRecord(step=step_name, lane=lane))

    def _segment_key(self, number: int) -> str:
        return f"{self.prefix}-segments/{number:06d}.json"

    def _key(self, sequence: int) -> str:
        return f"{self.prefix}/{sequence:08d}.json"


def owner() -> str:
    """Name this process so that another one on the same host can tell whether it still lives."""
    process = psutil.Process(os.getpid())
    return f"{socket.gethostname()} {process.pid} {process.create_time():.2f}"


def _is_alive(claimant: str, age: timedelta, lease: timedelta) -> bool:
    """On this host the process table decides, for another one only the lease can."""
    host, pid, started = claimant.rsplit(" ", 2)
    if host != socket.gethostname():
        return age <= lease
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(started)) < 1
    except psutil.NoSuchProcess:
        return False
