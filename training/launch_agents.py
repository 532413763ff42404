"""The supervisor's side of a host's agent: started directly or over ssh, spoken to through its pipes."""

import json
import shlex
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import training
from training.launch_hosts import is_this_machine

GRACE_S = 10.0
"""How long an agent may take to end its ranks and itself."""
TAIL_LINES = 20

Event = dict[str, Any]
"""What an agent says, with its host's name as `host`; the last that it has `said` is `gone`."""


class Agent:
    """One host's agent. What it says arrives in `events`, in order."""

    def __init__(self, host: str, ssh: tuple[str, ...], events: "Queue[Event]") -> None:
        self.host = host
        self.ready = False
        self.noise: deque[str] = deque(maxlen=TAIL_LINES)
        self.command = agent_command(host, ssh)
        self._process = subprocess.Popen(  # noqa: S603 - our own command; what ssh is given is configured
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        Thread(target=self._listen, args=(events,), daemon=True).start()

    def tell(self, **order: object) -> None:
        """Give an order; an agent that is gone says so by itself."""
        assert self._process.stdin is not None  # noqa: S101 - asked for above
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Let go: the end of its input makes the agent end its ranks and itself."""
        assert self._process.stdin is not None  # noqa: S101 - asked for above
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until the agent has ended, and kill what does not."""
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def complaint(self) -> str:
        """Return what came instead of messages: ssh's errors, or a traceback."""
        return "\n".join(self.noise).strip() or "it said nothing"

    def _listen(self, events: "Queue[Event]") -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        for line in self._process.stdout:
            try:
                message = json.loads(line)
                message["said"]
            except (ValueError, TypeError, KeyError):  # a login message, or an error of ssh
                self.noise.append(line.decode(errors="replace").rstrip())
                continue
            self.ready = True
            events.put(message | {"host": self.host})
        events.put({"said": "gone", "host": self.host})


def agent_command(host: str, ssh: tuple[str, ...]) -> list[str]:
    """Return the command that starts the agent of a host, where the same Python is at the same path."""
    root = Path(training.__file__).parents[1]
    command = ["env", f"PYTHONPATH={root}", sys.executable, "-P", "-m", "training.host_agent"]
    return command if is_this_machine(host) else [*ssh, host, shlex.join(command)]
