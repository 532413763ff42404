"""Signs of life: what a rank tells its host's agent while it works, and its stack on SIGUSR1.

A thread of its own sends them, because the rank itself spends an epoch inside one call of TensorFlow.
Without an agent, that is when nobody watches, all of this does nothing.
"""

import faulthandler
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread, get_native_id

AGENT = "FLOODMARK_AGENT"
"""The variable that names the agent's private folder."""
SOCKET = "heartbeats"
EVERY_S = 0.5


@dataclass(slots=True, kw_only=True)
class Sign:
    """What is known of a rank: any change of `phase`, `step` or `ticks` is progress.

    Attributes:
        rank: Of the process.
        pid: On its host.
        beats: Signs sent so far; 0 before the first.
        phase: What it does, as a person would say it.
        step: Steps that have ended since the training began; -1 before the first.
        ticks: Pieces of work that have ended, of whatever kind.
        stepping: A step of this phase has ended already, so the next will not take long: a rank that only
            computes makes no progress. Before, it may trace and compile.
        polling: Threads that wait for other ranks or send signs; the former use up to half a core for that.
        cpu: Seconds of processor time of all other threads, as the agent measures them.
    """

    rank: int
    pid: int
    beats: int = 0
    phase: str = "starting"
    step: int = -1
    ticks: int = 0
    stepping: bool = False
    polling: list[int] = field(default_factory=list)
    cpu: float = 0.0


_own = Sign(rank=int(os.environ.get("HOROVOD_RANK", "0")), pid=os.getpid())
_count: list[Callable[[], int]] = []


def start() -> None:
    """Begin to send signs, if an agent listens."""
    if AGENT not in os.environ:
        return
    folder = Path(os.environ[AGENT])
    stack = (folder / f"stack-{_own.rank}").open("w")  # stays open: faulthandler writes there
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    Thread(target=_send, args=(str(folder / SOCKET),), daemon=True).start()


def phase(name: str) -> None:
    """Say what begins now."""
    _own.phase, _own.stepping = name, False
    tick()


@contextmanager
def polling() -> Iterator[None]:
    """Take the threads that the block starts for those that poll for other ranks."""
    before = set(_threads())
    yield
    _own.polling += sorted(set(_threads()) - before)


def _threads() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc/self/task").iterdir())


def tick() -> None:
    """Say that a piece of work has ended: one of many in a phase without steps."""
    _own.ticks += 1


@contextmanager
def steps(count: Callable[[], int]) -> Iterator[None]:
    """Watch the number of ended steps, read by `count` in another thread, while the block runs."""
    _own.phase, _own.stepping, _own.step = "steps", False, count()
    _count.append(count)
    try:
        yield
    finally:
        _count.clear()
        _own.phase, _own.stepping, _own.step = "between steps", False, count()
        tick()


def _send(address: str) -> None:
    _own.polling.append(get_native_id())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        while True:
            for count in _count[:1]:
                step = count()
                _own.stepping = _own.stepping or step > _own.step
                _own.step = step
            _own.beats += 1
            # A full channel loses a sign, not the rank's time; a missing one means that the agent has ended.
            with suppress(OSError):
                channel.sendto(json.dumps(asdict(_own)).encode(), address)
            time.sleep(EVERY_S)
