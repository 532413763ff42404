"""Prefect's temporary server as a child that cannot outlive us.

Prefect starts the same server by itself when no API is configured, but one that survives a SIGKILL of
its parent and keeps the database open, and only once the first flow asks for it. Started here, it comes
up while the heavy libraries are imported.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from training import bound_child
from training.errors import ConfigurationError, RetryableError

API_URL = "PREFECT_API_URL"
STARTUP_TIMEOUT_S = 180.0
GRACE_S = 10.0


@contextmanager
def prefect_environment(home: Path) -> Iterator[Callable[[], None]]:
    """Provide Prefect's API: the configured one, or a temporary server that keeps its database in `home`.

    Leaving the context ends the server. Enter it before prefect is imported, and call what it yields
    before the first flow: it waits until the API answers.
    """
    # Runs keep their logs for Prefect's pages; on the terminal, our own lines say the same more briefly.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    try:
        (home / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the home {home} cannot be made: {error}", hint="name a folder that can be written with --home"
        ) from error
    if os.environ.get(API_URL):
        yield lambda: wait_for_api(None)
        return
    os.environ["PREFECT_HOME"] = str(home / "prefect")
    host, port = "127.0.0.1", _free_port()
    bound = (sys.executable, "-P", str(Path(bound_child.__file__)), str(os.getpid()))
    with (home / "logs" / "prefect-server.log").open("ab") as log:
        server = subprocess.Popen(  # noqa: S603 - a command of ours
            [*bound, *server_command(host, port)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "1"},  # at once
            process_group=0,  # an interrupt from the terminal is ours; the server ends after us
        )
    os.environ[API_URL] = f"http://{host}:{port}/api"
    try:
        yield lambda: wait_for_api(server)
    finally:
        del os.environ[API_URL]
        server.terminate()
        try:
            server.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_for_api(server: "subprocess.Popen[bytes] | None", seconds: float = STARTUP_TIMEOUT_S) -> None:
    """Wait until the API answers, for as long as the temporary server lives.

    Raises:
        RetryableError: It did not within so many seconds, or its server ended.
    """
    deadline = time.monotonic() + seconds
    url = os.environ[API_URL].rstrip("/")
    error: Exception | None = None
    while time.monotonic() < deadline and (server is None or server.poll() is None):
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - the configured API
                return
        except (urllib.error.URLError, OSError) as refused:
            error = refused
            time.sleep(0.1)
    raise RetryableError(
        f"the Prefect server at {url} does not answer: {error}",
        hint="see logs/prefect-server.log under the home, or check PREFECT_API_URL; no window was taken",
    )


def server_command(host: str, port: int) -> tuple[str, ...]:
    """Return the command of a server, which keeps its database where Prefect's own variables say."""
    application = ("--factory", "prefect.server.api.server:create_app", "--lifespan", "on")
    address = ("--host", host, "--port", str(port), "--log-level", "error")
    return (sys.executable, "-P", "-m", "uvicorn", *application, *address)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
