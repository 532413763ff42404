"""How tests look at processes: an end takes a moment, and a zombie that nobody has reaped is not alive."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil


def wait_until(condition: Callable[[], object], seconds: float = 180) -> None:
    """Wait until `condition` holds, which may take up to `seconds`; it fails the test otherwise."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come to pass within {seconds:g} s"
        time.sleep(0.1)


def alive(process: psutil.Process) -> bool:
    """Whether a process runs, or could."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_of(marker: object) -> list[psutil.Process]:
    """Return the living processes with `marker` in their arguments or environment, this one's own aside."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(str(marker) in word for word in words) and alive(process):
                found.append(process)
    return found


def descendants(pid: int = os.getpid()) -> list[psutil.Process]:
    """Return the living descendants of a process, of this one by default."""
    return list(filter(alive, psutil.Process(pid).children(recursive=True)))


def wait_until_ended(processes: Iterable[psutil.Process], seconds: float = 30) -> None:
    """Wait until none of the processes is alive."""
    watched = list(processes)
    wait_until(lambda: not any(map(alive, watched)), seconds)


def wait_until_nothing_is_left_of(marker: object, seconds: float = 30) -> None:
    """Wait until no process names `marker`; fail with those that do."""
    with suppress(AssertionError):
        wait_until(lambda: not processes_of(marker), seconds)
    assert [process.cmdline() for process in processes_of(marker)] == []


def is_rank(process: psutil.Process) -> bool:
    """Whether a process is a rank of a training's job."""
    with suppress(psutil.Error):
        return process.cmdline()[1:3] == ["-m", "training.job"]
    return False


def rank_of(process: psutil.Process) -> int:
    """Return the rank that a process is."""
    return int(process.environ()["HOROVOD_RANK"])
