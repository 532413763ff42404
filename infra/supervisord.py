"""Supervisor (supervisord.org) keeps the processes: starts and restarts them, bounds their logs, ends them.

It is bound to this process, and each service to it, so that nothing outlives a SIGKILL of any of them.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xmlrpc.client import Error, ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from infra.service_health import last_lines
from infra.services import Service
from training import bound_child
from training.errors import RetryableError

TRIED_SECONDS = 15
"""A service that ends sooner has failed to start, and is tried again after 1, 2, 3 … s, RETRIES times."""
RETRIES = 3
LOG_MEGABYTES, OLD_LOGS = 10, 2
STOP_SECONDS = 30
END_SECONDS = 90.0

DAEMON = """\
[supervisord]
nodaemon=true
silent=true
logfile={folder}/logs/supervisor.log
logfile_maxbytes=1MB
logfile_backups=1
pidfile={folder}/pid
childlogdir={folder}
[unix_http_server]
file={folder}/socket
chmod=0600
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
PROGRAM = """\
[program:{name}]
command={command}
autostart=false
autorestart=true
startsecs={tried}
startretries={retries}
stopwaitsecs={stop}
killasgroup=true
redirect_stderr=true
stdout_logfile={folder}/logs/{name}.log
stdout_logfile_maxbytes={megabytes}MB
stdout_logfile_backups={old}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What supervisor says of a service: its state there (`RUNNING`, `FATAL`, …), its process and more."""

    state: str
    pid: int
    said: str


class Supervisor:
    """A running supervisor."""

    def __init__(self, daemon: "subprocess.Popen[bytes]", socket: Path) -> None:
        self.daemon = daemon
        self.address = f"unix://{socket}"

    def start(self, name: str) -> None:
        """Start a service, without waiting for it."""
        self._call("startProcess", name, False)

    def restart(self, name: str) -> None:
        """End a service that still runs, and start it anew."""
        self.stop(name)
        self.start(name)

    def stop(self, name: str) -> None:
        """End a service and keep it ended."""
        with suppress(Error):  # it ended by itself
            self._call("stopProcess", name, True)

    def processes(self) -> dict[str, Process]:
        """Return every service's process by name.

        Raises:
            RetryableError: The supervisor is gone, and every service with it.
        """
        return {
            item["name"]: Process(
                state=item["statename"], pid=item["pid"], said=item["spawnerr"] or item["description"]
            )
            for item in self._call("getAllProcessInfo")
        }

    def end(self) -> None:
        """End all services, the last one first, and the supervisor; what does not end in time is killed."""
        with suppress(RetryableError, Error):
            self._call("shutdown")
        for stronger in (self.daemon.terminate, self.daemon.kill):
            with suppress(subprocess.TimeoutExpired):
                self.daemon.wait(END_SECONDS)
            if self.daemon.poll() is None:
                stronger()
        self.daemon.wait()

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - XML-RPC has no types
        # Its connection is of no more use after an error, so each call has one of its own.
        transport = SupervisorTransport(None, None, self.address)
        try:
            with ServerProxy("http://localhost", transport=transport) as proxy:
                return getattr(proxy.supervisor, method)(*arguments)
        except (OSError, HTTPException) as error:
            raise RetryableError(
                f"the supervisor of the services is gone: {error}",
                hint="every service ended with it; see logs/supervisor.log under the home, and start again",
            ) from error


@contextmanager
def supervised(
    services: Iterable[Service], logs: Path, environment: Mapping[str, str]
) -> Iterator[Supervisor]:
    """Run a supervisor that knows the services and has started none; leaving the context ends all of them.

    Raises:
        RetryableError: It does not start.
    """
    with TemporaryDirectory(prefix="floodmark-") as scratch:  # the path of a socket must be short
        folder = Path(scratch)
        (folder / "logs").symlink_to(logs.absolute())  # supervisor stumbles over percent signs in their path
        (folder / "supervisord.conf").write_text(_configuration(services, folder), encoding="utf-8")
        bound = (sys.executable, "-P", str(Path(bound_child.__file__)), str(os.getpid()))
        daemon = (
            sys.executable,
            "-P",
            "-m",
            "supervisor.supervisord",
            "-c",
            str(folder / "supervisord.conf"),
        )
        with (logs / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - a command of ours
                [*bound, *daemon],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(environment),
                process_group=0,  # an interrupt from the terminal is ours
            )
        supervisor = Supervisor(process, folder / "socket")
        try:
            _wait(supervisor, logs / "supervisor.log")
            yield supervisor
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # whoever asks again need not
            supervisor.end()


def _configuration(services: Iterable[Service], folder: Path) -> str:
    """Write supervisor's configuration, in which a percent sign is doubled."""

    def program(service: Service) -> str:
        command = (sys.executable, "-P", "-m", "infra.contained", *service.command)
        return PROGRAM.format(
            name=service.name,
            command=shlex.join(command).replace("%", "%%"),
            tried=TRIED_SECONDS,
            retries=RETRIES,
            stop=STOP_SECONDS,
            folder=folder,
            megabytes=LOG_MEGABYTES,
            old=OLD_LOGS,
        )

    return DAEMON.format(folder=folder) + "".join(program(service) for service in services)


def _wait(supervisor: Supervisor, log: Path) -> None:
    deadline = time.monotonic() + END_SECONDS
    while True:
        with suppress(RetryableError):
            supervisor.processes()
            return
        if supervisor.daemon.poll() is not None or time.monotonic() > deadline:
            raise RetryableError(
                "the supervisor of the services did not start",
                hint=f"the end of {log}:\n{last_lines(log)}\n  nothing was started",
            )
        time.sleep(0.1)
