"""What a pool asks of the supervisor of a training, and what it is told in the end."""

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

HOST = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*):(?P<slots>[1-9][0-9]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine, by a name or an IPv4 address that `ssh` knows, and how many ranks it may run."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse_host(text: str) -> Host:
    """Read `name:slots`.

    Raises:
        ValueError: It is something else.
    """
    if (match := HOST.fullmatch(text.strip())) is None:
        raise ValueError(f"{text.strip()!r} is no host; write name:slots, as in worker-1:4")
    return Host(name=match["name"], slots=int(match["slots"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """How to run the ranks of one training.

    Attributes:
        command: Of every rank.
        environment: Of every rank, beside what tells it its place. It may hold credentials: it reaches the
            ranks through the supervisor's and the agents' standard input, and no command line or file.
        paths: What must exist on each host before a rank starts; the first is the ranks' working folder.
        output: Where a rank writes its error.
        logs: The folder of the ranks' logs, one file a rank.
        hosts: Where to run, each as `name:slots`; empty where `discovery` tells.
        discovery: A program that prints the present hosts, one a line: the training is elastic.
        fewest_ranks: An elastic training goes on with as few.
        most_ranks: As many are started where there are slots; all of them, unless it is elastic.
        ssh: The command that reaches another machine, up to before its name.
        interface: The network interface that the ranks' rendezvous is bound to; derived where None.
        watchdog_seconds: A rank that shows no progress for as long is ended.
        exchange_seconds: How long Horovod waits for a peer that is alive.
        timeline: Whether each rank writes Horovod's timeline beside its log.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    paths: tuple[str, ...]
    output: str
    logs: str
    hosts: tuple[str, ...]
    discovery: str | None
    fewest_ranks: int
    most_ranks: int
    ssh: tuple[str, ...]
    interface: str | None
    watchdog_seconds: float
    exchange_seconds: int
    timeline: bool = False

    def to_line(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "LaunchPlan":
        """Read what `to_line` wrote."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields | {name: tuple(fields[name]) for name in ("command", "paths", "hosts", "ssh")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the ranks did not finish; `host` is the one to blame, where one is.

    `configuration` is true where only a person can mend it.
    """

    message: str
    hint: str
    retryable: bool = True
    host: str | None = None
    unreachable: bool = False
    configuration: bool = False
