"""Whether a service works: what its URL answers, the heartbeat of a worker, and who holds a port."""

import json
import socket
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from infra.services import Service
from training.errors import ConfigurationError

ANSWER_SECONDS = 5.0
TAIL_LINES, TAIL_BYTES = 12, 8192


def healthy(service: Service, heartbeat_before: str | None) -> bool:
    """Tell whether a service works now.

    Args:
        service: Which.
        heartbeat_before: Of a worker, the heartbeat that an earlier one of its name left behind.
    """
    if service.worker is not None:
        beat = heartbeat(service)
        return beat is not None and beat != heartbeat_before
    try:
        with urllib.request.urlopen(service.health, timeout=ANSWER_SECONDS):  # noqa: S310 - of our own configuration
            return True
    except (OSError, ValueError):
        return False


def heartbeat(service: Service) -> str | None:
    """Return when Prefect last heard of a worker that it takes for online, by its clock; None for never."""
    request = urllib.request.Request(  # noqa: S310 - of our own configuration
        service.health, data=b"{}", headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - likewise
            workers = json.load(answer)
    except (OSError, ValueError):
        return None
    beats = [
        item["last_heartbeat_time"]
        for item in workers
        if item["name"] == service.worker and item["status"] == "ONLINE"
    ]
    return str(beats[0]) if beats and beats[0] else None


def require_free_ports(services: Iterable[Service], host: str) -> None:
    """Refuse ports that something else listens at, all of them together.

    Raises:
        ConfigurationError: A port is in use, or the host is no address of this machine.
    """
    taken = []
    for service in services:
        if service.port is None:
            continue
        try:
            family = socket.getaddrinfo(host, service.port, type=socket.SOCK_STREAM)[0][0]
            socket.create_server((host, service.port), family=family).close()
        except OSError as error:
            holder = holder_of(service.port)
            why = (
                f"{host}:{service.port} is in use by {holder}"
                if holder
                else f"{host}:{service.port}: {error}"
            )
            taken.append(f"{service.name} cannot listen: {why}; its setting is {service.setting}")
    if taken:
        raise ConfigurationError(
            "\n  ".join(taken),
            hint="end that process, or set another port or host in [services]; nothing was started",
        )


def holder_of(port: int) -> str | None:
    """Return the program and process that listen at a port; None where that cannot be told."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr:
                continue
            if connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return None


def last_lines(log: Path) -> str:
    """Return the end of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"(not readable: {error})"
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
