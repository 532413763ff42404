"""Which hosts there are now: a discovery script's answer, less those that are set aside for a while."""

import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from training.errors import ConfigurationError
from training.launch_plan import Host, parse_host

DISCOVERY_S = 30.0
"""How long a discovery script may take."""
SHORTEST_ASIDE_S = 10.0
LONGEST_ASIDE_S = 600.0


def discover(script: str) -> tuple[Host, ...]:
    """Run the discovery script, which prints one `name:slots` a line.

    Raises:
        ConfigurationError: There is no such program, it failed, or it printed something else or nothing.
    """
    hint = f"Run it by hand: {script}. It must print one host a line, as in worker-1:4, and exit with 0."
    try:
        done = subprocess.run([script], capture_output=True, text=True, timeout=DISCOVERY_S, check=True)  # noqa: S603 - the configured program
        hosts = parse_hosts(done.stdout.splitlines())
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no discovery script {script}", hint=hint) from error
    except PermissionError as error:
        raise ConfigurationError(
            f"the discovery script {script} cannot be run", hint=f"chmod +x {script}"
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or error.stdout.strip())[-500:]
        raise ConfigurationError(
            f"the discovery script {script} ended with exit code {error.returncode}: {said}", hint=hint
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"the discovery script {script} took longer than {DISCOVERY_S:g} s", hint=hint
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the discovery script {script} is of no use: {error}", hint=hint) from error
    if not hosts:
        raise ConfigurationError(f"the discovery script {script} printed no host", hint=hint)
    return hosts


def parse_hosts(lines: Iterable[str]) -> tuple[Host, ...]:
    """Read one `name:slots` a line; empty lines and what follows a # do not count.

    Raises:
        ValueError: A line is something else, or names a host twice.
    """
    stated = [text for line in lines if (text := line.split("#")[0].strip())]
    hosts = tuple(parse_host(text) for text in stated)
    names = [host.name for host in hosts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"named twice: {', '.join(twice)}; state all slots of a host at once")
    return hosts


def read_host_file(path: Path) -> tuple[Host, ...]:
    """Read a host file, one `name:slots` a line.

    Raises:
        ValueError: It cannot be read, or a line is no host.
    """
    try:
        return parse_hosts(path.expanduser().read_text().splitlines())
    except OSError as error:
        raise ValueError(f"the host file {path} cannot be read: {error.strerror}") from error


def is_this_machine(name: str) -> bool:
    """Whether a host is reached without ssh: a loopback name, or an own name or address."""
    if name == "localhost" or name.startswith("127.") or name == socket.gethostname():
        return True
    return any(item.address == name for items in psutil.net_if_addrs().values() for item in items)


def address_towards(host: str) -> str:
    """Return this machine's address on the way to a host, IPv4.

    Raises:
        OSError: The host is not known, or there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: it asks for the route
        return str(probe.getsockname()[0])


@dataclass(frozen=True, slots=True)
class _Strikes:
    count: int
    until: float


class HostBook:
    """Sets hosts aside whose ranks keep failing; times are in seconds.

    The first failure is forgiven, from the second on in a row a host rests, each time twice as long: 10 s,
    20 s, … up to ten minutes. A host that cannot be reached rests at once.
    """

    def __init__(self) -> None:
        self._strikes: dict[str, _Strikes] = {}

    def failed(self, name: str, now: float, *, unreachable: bool = False) -> None:
        """Remember that a host is to blame for the end of a run."""
        before = self._strikes.get(name, _Strikes(0, 0.0)).count
        count = max(before + 1, 2) if unreachable else before + 1
        rest = min(SHORTEST_ASIDE_S * 2 ** (count - 2), LONGEST_ASIDE_S) if count > 1 else 0.0
        self._strikes[name] = _Strikes(count, now + rest)

    def worked(self, name: str) -> None:
        """Forget a host's failures: the training made progress with it."""
        self._strikes.pop(name, None)

    def usable(self, hosts: Sequence[Host], now: float) -> tuple[Host, ...]:
        """Return those that are not set aside now."""
        aside = {name for name, strikes in self._strikes.items() if strikes.until > now}
        return tuple(host for host in hosts if host.name not in aside)
