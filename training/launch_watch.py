"""The watchdog's decision: which ranks are frozen, and when all of them are out of step.

Horovod's own stall check says nothing on Gloo, and a peer that is stopped makes all others wait for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from training.heartbeat import Sign

BUSY_SHARE = 0.05
"""A rank computes that uses this share of a core, without the threads that poll for other ranks."""

BUSY_OVER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """`frozen` ranks gave no sign of life; where there is none, all live and none makes progress."""

    frozen: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Seen:
    sign: Sign
    cpu: float
    cpu_at: float
    alive_at: float
    progress_at: float


class Watch:
    """Remembers when each rank last showed life and progress; `patience` is in seconds, as are all times."""

    def __init__(self, ranks: Iterable[int], patience: float, now: float) -> None:
        self.patience = patience
        self.seen = {
            rank: _Seen(sign=Sign(rank=rank, pid=0), cpu=0.0, cpu_at=now, alive_at=now, progress_at=now)
            for rank in ranks
        }

    def observe(self, sign: Sign, now: float) -> None:
        """Take in what the agent says of a rank; of one that has ended it means nothing."""
        if (seen := self.seen.get(sign.rank)) is None:
            return
        before = seen.sign
        busy = False
        if (
            elapsed := now - seen.cpu_at
        ) >= BUSY_OVER_S:  # over less, the way of the news makes the difference
            busy = sign.cpu - seen.cpu >= BUSY_SHARE * elapsed
            seen.cpu, seen.cpu_at = sign.cpu, now
        if busy or sign.beats != before.beats:
            seen.alive_at = now
        moved = (sign.phase, sign.step, sign.ticks) != (before.phase, before.step, before.ticks)
        if moved or (busy and not sign.stepping):
            seen.progress_at = now
        seen.sign = sign

    def forget(self, rank: int) -> None:
        """Stop watching a rank that has ended."""
        self.seen.pop(rank, None)

    def stall(self, now: float) -> Stall | None:
        """Return who has been still for too long, if anybody."""
        frozen = tuple(
            rank for rank, seen in sorted(self.seen.items()) if now - seen.alive_at >= self.patience
        )
        if frozen:
            return Stall(frozen=frozen)
        if self.seen and all(now - seen.progress_at >= self.patience for seen in self.seen.values()):
            return Stall(frozen=())
        return None

    def where(self, rank: int) -> str:
        """Say where a rank was when it was last heard of."""
        sign = self.seen[rank].sign
        return f"in phase {sign.phase!r}" + (f", {sign.step} steps done" if sign.step >= 0 else "")
