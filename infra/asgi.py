"""Our HTTP services on uvicorn: a port that is taken before anything else, and a clean end."""

import signal
import socket
from typing import Any

import uvicorn

from training.errors import ConfigurationError

GRACE_SECONDS = 30
"""After a signal, for requests in flight."""


def bind(host: str, port: int) -> socket.socket:
    """Take a port, or a free one for 0.

    Raises:
        ConfigurationError: It cannot be listened at.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at {host}:{port}: {error}",
            hint="name a free --port, and as --host an address of this machine",
        ) from error


def run(application: Any, listening: socket.socket) -> None:  # noqa: ANN401 - uvicorn takes any ASGI application
    """Answer on a bound socket until SIGTERM or SIGINT; requests in flight are answered first."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # Uvicorn raises the signal again when it has stopped; it has done its part then.
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS
    )
    uvicorn.Server(config).run(sockets=[listening])
