"""Starts a training's supervisor as a child process and listens to it until the outcome."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import psutil

from infra import rank_environment
from training import bound_child
from training.errors import RetryableError
from training.launch_plan import Failure, LaunchPlan

GRACE_S = 15.0
WAIT_S = 1.0
TAIL_LINES = 30


def supervise(
    plan: LaunchPlan, log: Path, timeout: float, report: Callable[[dict[str, Any]], None]
) -> Failure | None:
    """Run a plan to its end; return why it failed, if it did. In the end nothing of it is left.

    Args:
        plan: What to run.
        log: Where the supervisor's own words go.
        timeout: In seconds.
        report: Takes each event but the outcome.

    Raises:
        RetryableError: The time ran out, or the supervisor ended without an outcome.
    """
    deadline = time.monotonic() + timeout
    bound = (sys.executable, "-P", str(Path(bound_child.__file__)), str(os.getpid()))
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603 - a command of our own
            [*bound, sys.executable, "-m", "training.launch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            cwd=log.parent,
            env=rank_environment.of_supervisor(),
            process_group=0,  # an interrupt from the terminal reaches this process, which ends the ranks
        )
    try:
        assert process.stdin is not None  # noqa: S101 - asked for above
        with suppress(BrokenPipeError):
            process.stdin.write(plan.to_line().encode())
            process.stdin.flush()
        for event in _events(process, deadline):
            if event["event"] == "outcome":
                return Failure(**event["failure"]) if event["failure"] else None
            report(event)
        if time.monotonic() < deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
            raise RetryableError(
                "the training's supervisor ended without an outcome",
                hint=f"It was killed from outside, or failed. The end of {log}:\n{tail}",
            )
        raise RetryableError(
            f"the training did not end within {timeout:g} s and was stopped",
            hint=f"No model was written. Its logs are {plan.logs}; allow more time, or more ranks.",
        )
    finally:
        _end(process)


def _events(process: "subprocess.Popen[bytes]", deadline: float) -> Iterator[dict[str, Any]]:
    """Yield what the supervisor says, until its end or the deadline."""
    said: Queue[bytes] = Queue()

    def listen() -> None:
        assert process.stdout is not None  # noqa: S101 - asked for by the caller
        with process.stdout as stream:
            for line in stream:
                said.put(line)
        said.put(b"")

    Thread(target=listen, daemon=True).start()
    line = b"{}"
    while line and (left := deadline - time.monotonic()) > 0:
        # Waits are short: what another thread raises in this one, as Prefect's timeout may, comes in between.
        with suppress(Empty):
            if line := said.get(timeout=min(left, WAIT_S)):
                yield json.loads(line)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the supervisor, which ends every rank on every host, and see to it that they are gone."""
    assert process.stdin is not None  # noqa: S101 - asked for by the caller
    descendants = []
    with suppress(psutil.NoSuchProcess):
        descendants = psutil.Process(process.pid).children(recursive=True)
    with suppress(BrokenPipeError):
        process.stdin.close()  # it ends its agents, and they their ranks
    for stronger in (process.terminate, process.kill, lambda: None):
        try:
            process.wait(GRACE_S)
            break
        except subprocess.TimeoutExpired:
            stronger()
    for survivor in psutil.wait_procs(descendants, timeout=0)[1]:
        survivor.kill()
    left = psutil.wait_procs(descendants, timeout=GRACE_S)[1]
    if left:
        raise RetryableError(
            f"processes of the training could not be ended: {', '.join(str(item.pid) for item in left)}",
            hint="They wait for a disk or a GPU, most likely; see to them before training again.",
        )
