"""The course of `floodmark up`: servers, deployments, what needs them, and a look at all until the end."""

import fcntl
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flows.interrupt import pause
from infra.passwords import without_password
from infra.service_health import healthy, heartbeat, last_lines, require_free_ports
from infra.services import Plan, Service
from infra.supervisord import Process, Supervisor, supervised
from training.errors import ConfigurationError, RetryableError

START_SECONDS = 180.0
"""Within which a service must work, and after which one that stopped answering is started anew."""
DEAF_SECONDS = 90.0
LOOK_SECONDS, CHECK_SECONDS = 0.5, 5.0
MOST_RESTARTS, RESTARTS_SECONDS = 5, 600.0

Tell = Callable[[str, str, str], None]
"""Takes a service's name, its new state, and more words."""


@dataclass(slots=True)
class Kept:
    """A service and what has been seen of it. The times are of the monotonic clock, in seconds."""

    service: Service
    heartbeat_before: str | None = None
    state: str = "stopped"
    pid: int = 0
    since: float = 0.0
    looked: float = 0.0
    answered: float = 0.0
    starts: deque[float] = field(default_factory=deque)


def keep_up(plan: Plan, home: Path, host: str, deploy: tuple[str, ...] | None, tell: Tell) -> None:
    """Start everything, tell when all of it is ready, and keep it so until KeyboardInterrupt.

    While it starts, a failure ends all of it. Later, what fails again and again is told and stays down, and
    the others go on.

    Args:
        plan: What to keep.
        home: Where the logs and the lock are.
        host: What the services listen at.
        deploy: The command that creates deployments, once the servers answer.
        tell: Takes what a person or a script is told.

    Raises:
        ConfigurationError: A port is in use, or another `floodmark up` has this home.
        RetryableError: A service or the deployments failed at the start.
    """
    with only_one(home):
        require_free_ports(plan.services, host)
        logs = home / "logs"
        with supervised(plan.services, logs, plan.environment) as supervisor:
            keeper = Keeper(supervisor, logs, tell)
            keeper.start(plan.servers)
            if deploy is not None:
                run_once("deployments", deploy, plan, logs)
                tell("deployments", "ready", "")
            keeper.start(plan.others)
            tell("all", "ready", ", ".join(f"{item.name} {item.url}" for item in plan.services if item.url))
            while True:
                pause(LOOK_SECONDS)
                keeper.look()


class Keeper:
    """Looks after services that a supervisor runs."""

    def __init__(self, supervisor: Supervisor, logs: Path, tell: Tell) -> None:
        self.supervisor = supervisor
        self.logs = logs
        self.tell = tell
        self.kept: dict[str, Kept] = {}

    def start(self, services: Iterable[Service]) -> None:
        """Start services side by side and wait until each of them works.

        Raises:
            RetryableError: One of them does not within three minutes, or failed again and again.
        """
        begun = [
            Kept(service=item, heartbeat_before=heartbeat(item) if item.worker else None) for item in services
        ]
        for kept in begun:
            self.kept[kept.service.name] = kept
            self.supervisor.start(kept.service.name)
            self._move(kept, "starting", "")
        deadline = time.monotonic() + START_SECONDS
        while waiting := [kept for kept in begun if kept.state != "ready"]:
            pause(LOOK_SECONDS)
            self.look()
            for kept in waiting:
                late = time.monotonic() > deadline and kept.state != "ready"
                if late or kept.state == "failed":
                    raise RetryableError(
                        f"the service {kept.service.name} "
                        + (
                            "failed again and again"
                            if not late
                            else f"did not answer within {START_SECONDS:g} s"
                        ),
                        hint=self._end_of(kept) + "\n  everything was stopped",
                    )

    def look(self) -> None:
        """Compare every service with what was seen of it, tell what changed, and restart what is deaf."""
        processes = self.supervisor.processes()
        for name, kept in self.kept.items():
            if kept.state != "failed":
                self._look_at(kept, processes[name], time.monotonic())

    def _look_at(self, kept: Kept, process: Process, now: float) -> None:
        if process.pid and process.pid != kept.pid:
            if kept.pid:
                self._move(kept, "restarted", process.said)
                kept.looked = 0.0
            kept.pid, kept.since, kept.answered = process.pid, now, now
            kept.starts.append(now)
        while kept.starts and kept.starts[0] < now - RESTARTS_SECONDS:
            kept.starts.popleft()
        if process.state in {"FATAL", "EXITED"} or len(kept.starts) > MOST_RESTARTS:
            self.supervisor.stop(kept.service.name)
            self._move(kept, "failed", self._end_of(kept))
        elif process.state == "BACKOFF":
            self._move(kept, "waits to be restarted", process.said)
        elif now - kept.looked >= (CHECK_SECONDS if kept.state == "ready" else LOOK_SECONDS):
            kept.looked = now
            self._check(kept, now)

    def _check(self, kept: Kept, now: float) -> None:
        if healthy(kept.service, kept.heartbeat_before):
            kept.answered = now
            self._move(kept, "ready", kept.service.url or "")
        elif kept.state in {"ready", "does not answer"}:
            self._move(kept, "does not answer", "")
            if now - kept.answered > DEAF_SECONDS:
                self.supervisor.restart(kept.service.name)

    def _move(self, kept: Kept, state: str, words: str) -> None:
        if kept.state != state:
            kept.state = state
            self.tell(kept.service.name, state, words)

    def _end_of(self, kept: Kept) -> str:
        log = self.logs / f"{kept.service.name}.log"
        return f"the end of {log}:\n{without_password(last_lines(log))}"


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold this home's lock, which ends with the process.

    Raises:
        ConfigurationError: Another process holds it, or the home cannot be written.
    """
    try:
        (home / "logs").mkdir(parents=True, exist_ok=True)
        lock = (home / "up.lock").open("a+", encoding="ascii")
    except OSError as error:
        raise ConfigurationError(
            f"the home {home} cannot be written: {error}", hint="name a folder that can with --home"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ConfigurationError(
                f"`floodmark up` has the home {home} already, as process {lock.read().strip()}",
                hint="end that one first, or name another --home and other ports in [services]",
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def run_once(name: str, command: tuple[str, ...], plan: Plan, logs: Path) -> None:
    """Run a command to its end, with the services' environment and its words in a log.

    Raises:
        RetryableError: It failed.
    """
    log = logs / f"{name}.log"
    with log.open("wb") as stream:
        done = subprocess.run(  # noqa: S603 - a command of ours
            command,
            env=dict(plan.environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            check=False,
        )
    if done.returncode:
        raise RetryableError(
            f"the {name} failed", hint=f"the end of {log}:\n{last_lines(log)}\n  everything was stopped"
        )
