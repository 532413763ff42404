"""`python bound_child.py PARENT COMMAND...`: run a command that cannot outlive its parent process.

Stays between the two as a small supervisor. When PARENT dies, even by SIGKILL, when this process is told to
end, or when the command ends and leaves something behind, every descendant is killed, in whatever process
group or session it is.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Both of prctl(2), Linux."""


def main(parent: int, command: list[str]) -> int:
    """Run `command` to its end and return its exit code."""
    leave_when_told()
    die_with_parent(signal.SIGTERM)
    adopt_descendants()
    if os.getppid() != parent:  # died before the signal was asked for
        return 128 + signal.SIGTERM
    try:
        return subprocess.Popen(command, preexec_fn=die_with_parent).wait()  # noqa: PLW1509, S603 - no threads here, and a command of ours
    finally:
        end_descendants()


def leave_when_told() -> None:
    """Turn the signals that ask a process to end into SystemExit, so that its `finally` blocks run."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)


def adopt_descendants() -> None:
    """Make descendants whose own parent dies children of this process, so that none is out of its sight."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the calling process get a signal when the one that forked it dies; it holds across exec."""
    _prctl(PR_SET_PDEATHSIG, number)


def end_descendants() -> None:
    """Kill every process below this one, whatever group or session it is in, and wait until they are gone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while descendants := psutil.Process().children(recursive=True):
        for process in descendants:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(descendants, timeout=1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
