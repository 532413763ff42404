"""The place where ranks find each other: Horovod's key-value store, on one private address, and their places.

Horovod's own launcher lets this server listen on every interface, without authentication, and probes the
build by importing TensorFlow first. Its releases have known holes for whoever reaches such ports
(CVE-2024-10190, CVE-2026-31234), so an address that is not private is refused here.
"""

import ipaddress
import socket
import socketserver
from collections.abc import Sequence
from threading import Thread
from typing import Any

import psutil
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer, RendezvousServer

from training.errors import ConfigurationError
from training.launch_hosts import address_towards
from training.launch_plan import Host, LaunchPlan

LOOPBACK = "127.0.0.1"


class _Handler(RendezvousHandler):  # type: ignore[misc] # horovod has no types
    def do_HEAD(self) -> None:  # noqa: N802 - the name that http.server gives it
        """Refuse: the inherited method would tell which files the working folder has."""
        self.send_error(405)


class _BoundServer(RendezvousHTTPServer):  # type: ignore[misc] # horovod has no types
    def server_bind(self) -> None:
        """Bind without asking the name service for the address's name, as http.server would."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


class Rendezvous(RendezvousServer):  # type: ignore[misc] # horovod has no types
    """Horovod's rendezvous server on one address; a context that stops it in the end."""

    def __init__(self, address: str, slots: Sequence[SlotInfo]) -> None:
        super().__init__()
        self.address = require_private(address)
        self.slots = slots

    def start(self) -> int:
        """Listen, and return the port."""
        self._httpd = _BoundServer((self.address, 0), _Handler, 0)
        self._httpd.init(self.slots)
        self._listen_thread = Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True)
        self._listen_thread.start()
        return int(self._httpd.server_address[1])

    def __enter__(self) -> int:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._httpd.server_close()


def require_private(address: str) -> str:
    """Return an IPv4 address that the whole world cannot reach.

    Raises:
        ConfigurationError: It stands for all interfaces, or is public.
    """
    parsed = ipaddress.IPv4Address(address)
    if parsed.is_unspecified or parsed.is_multicast or parsed.is_global:
        raise ConfigurationError(
            f"the ranks' rendezvous must not listen on {address}: it has no authentication",
            hint="Name an interface with a private address: [training] interface = …",
        )
    return address


def meeting_address(hosts: Sequence[str], interface: str | None) -> str:
    """Return this machine's address for the rendezvous: of `interface`, or the one that faces `hosts`.

    Args:
        hosts: The names of the other machines; without any, ranks meet on the loopback interface.
        interface: By name; None derives it from the route to the first host.

    Raises:
        ConfigurationError: There is no such interface, or the host's address is not known.
    """
    if interface is not None:
        return _address_of(interface)
    if not hosts:
        return LOOPBACK
    try:
        return address_towards(hosts[0])
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be one
        raise ConfigurationError(
            f"the address and route of host {hosts[0]} cannot be found: {error}",
            hint=f"Try `getent hosts {hosts[0]}`, or name this machine's side: [training] interface = …",
        ) from error


def _address_of(interface: str) -> str:
    known = psutil.net_if_addrs()
    for item in known.get(interface, ()):
        if item.family == socket.AF_INET:
            return str(item.address)
    raise ConfigurationError(
        f"there is no network interface {interface!r} with an IPv4 address",
        hint=f"[training] interface may be {', '.join(sorted(known))}",
    )


def assign(hosts: Sequence[Host], fewest: int, most: int) -> list[SlotInfo]:
    """Deal up to `most` ranks to the hosts' slots, in order.

    Raises:
        ConfigurationError: There are fewer slots than `fewest`.
    """
    slots = sum(host.slots for host in hosts)
    if slots < fewest:
        listed = ", ".join(map(str, hosts)) or "no host"
        raise ConfigurationError(
            f"{fewest} ranks are asked for, and there are {slots} slots ({listed})",
            hint="Add hosts or slots, or ask for fewer ranks.",
        )
    return list(get_host_assignments(parse_hosts(",".join(map(str, hosts))), fewest, most))


def environment_of(slot: SlotInfo, plan: LaunchPlan, address: str, port: int) -> dict[str, Any]:
    """Return what tells a rank its place; its agent adds the interface, which each host names its own way."""
    environment = {
        "HOROVOD_RANK": slot.rank,
        "HOROVOD_SIZE": slot.size,
        "HOROVOD_LOCAL_RANK": slot.local_rank,
        "HOROVOD_LOCAL_SIZE": slot.local_size,
        "HOROVOD_CROSS_RANK": slot.cross_rank,
        "HOROVOD_CROSS_SIZE": slot.cross_size,
        "HOROVOD_HOSTNAME": slot.hostname,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        "HOROVOD_GLOO_TIMEOUT_SECONDS": plan.exchange_seconds,
    }
    if plan.timeline:
        environment["HOROVOD_TIMELINE"] = f"{plan.logs}/timeline-rank-{slot.rank}.json"
    return {name: str(value) for name, value in environment.items()}
