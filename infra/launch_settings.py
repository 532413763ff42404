"""How a training is launched: the settings that the pools act on, in `[training]`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from training.launch_hosts import parse_hosts, read_host_file
from training.launch_plan import Host

Controller = Literal["gloo", "mpi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """Where ranks run and how they are watched.

    Attributes:
        controller: How ranks exchange: `mpi` needs the environment that `make mpi` makes, and has no watchdog
            but the training's timeout.
        ranks: How many; of an elastic training, at most.
        min_ranks: An elastic training goes on with as few.
        hosts: Each as `name:slots`, reached over ssh; or, one a line, in `host_file`.
        discovery_script: A program that prints the hosts of an elastic training, one `name:slots` a line.
        interface: The network interface of this machine on which ranks find each other; derived from the
            route to the hosts where None. Its address must be private.
        ssh_port, ssh_identity_file, ssh_known_hosts: As ssh's own configuration where None. A host whose key
            is not known is always refused.
        watchdog_seconds: A rank without a sign of life, or a training without progress, is ended after it.
        timeline: Whether every rank writes Horovod's timeline beside its log.
    """

    controller: Controller = "gloo"
    ranks: int = 2
    min_ranks: int = 1
    hosts: tuple[str, ...] = ()
    host_file: Path | None = None
    discovery_script: Path | None = None
    interface: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: Path | None = None
    ssh_known_hosts: Path | None = None
    watchdog_seconds: float = 120.0
    timeline: bool = False

    def __post_init__(self) -> None:
        if self.controller not in get_args(Controller):
            raise ValueError(f"controller is {self.controller!r}; allowed are gloo, mpi")
        if self.ranks < 1:
            raise ValueError(f"ranks is {self.ranks}; it must be at least 1")
        if self.min_ranks < 1:
            raise ValueError(f"min_ranks is {self.min_ranks}; it must be at least 1")
        if self.hosts and self.host_file:
            raise ValueError("state hosts or host_file, not both")
        parse_hosts(self.hosts)
        if not self.watchdog_seconds >= 5:  # noqa: PLR2004 - below, the import of a library looks frozen
            raise ValueError(f"watchdog_seconds is {self.watchdog_seconds}; it must be at least 5")

    def listed_hosts(self, ranks: int) -> tuple[Host, ...]:
        """Return the hosts of `hosts` or `host_file`.

        Raises:
            ValueError: There are none, the file cannot be read, or a line is no host.
        """
        stated = read_host_file(self.host_file) if self.host_file else parse_hosts(self.hosts)
        if not stated:
            raise ValueError('pool "hosts" needs hosts = ["name:slots", …] or a host_file that names some')
        if (slots := sum(host.slots for host in stated)) < ranks:
            listed = ", ".join(map(str, stated))
            raise ValueError(f"ranks is {ranks}, and the hosts have {slots} slots ({listed})")
        return stated

    def discovery(self, ranks: int) -> str:
        """Return the path of the discovery script.

        Raises:
            ValueError: None is named, it does not exist or may not be run, or min_ranks exceeds ranks.
        """
        if self.controller == "mpi":
            raise ValueError('pool "elastic" needs controller = "gloo": MPI ends all ranks with one')
        if self.discovery_script is None:
            raise ValueError('pool "elastic" needs discovery_script, a program that prints name:slots lines')
        if self.min_ranks > ranks:
            raise ValueError(f"min_ranks is {self.min_ranks}, more than ranks, {ranks}")
        path = self.discovery_script.expanduser().absolute()
        if not path.is_file():
            raise ValueError(f"there is no discovery_script {path}")
        if not os.access(path, os.X_OK):
            raise ValueError(f"the discovery_script {path} may not be run; chmod +x {path}")
        return str(path)

    def ssh_command(self) -> tuple[str, ...]:
        """Return how another machine is reached: never by a question, and never with an unknown host key."""
        stated = {
            "-p": self.ssh_port,
            "-i": self.ssh_identity_file and self.ssh_identity_file.expanduser(),
            "-o": self.ssh_known_hosts and f"UserKnownHostsFile={self.ssh_known_hosts.expanduser()}",
        }
        options = [part for name, value in stated.items() if value is not None for part in (name, str(value))]
        always = ("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10", "ServerAliveInterval=5")
        return ("ssh", "-T", *(part for option in always for part in ("-o", option)), *options)
