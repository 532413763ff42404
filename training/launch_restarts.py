"""The starts of one training: a single one on fixed hosts; of an elastic one, another whenever hosts change.

An elastic training goes on by a restart from its last checkpoint, as torchelastic does it
(https://docs.pytorch.org/docs/stable/elastic/run.html): when a rank is lost or frozen, or a host comes or
goes, all ranks are ended, the hosts are discovered anew and the ranks started again.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from threading import Thread

from training.errors import ConfigurationError
from training.launch_hosts import HostBook, discover
from training.launch_plan import Failure, Host, LaunchPlan, parse_host
from training.launch_round import NOTHING_SAVED, Round

MOST_RESTARTS = 3
"""In a row, without a new checkpoint in between."""
LOOK_S = 2.0
"""Between two runs of the discovery script."""
WAIT_FOR_HOSTS_S = 120.0
"""How long a restart waits until there are enough hosts."""


class HostsChangedError(Exception):
    """The round is over, because the hosts are no longer those it runs on."""


class Supervisor:
    """One training, over all of its starts."""

    def __init__(self, plan: LaunchPlan, say: Callable[..., None]) -> None:
        self.plan, self.say = plan, say
        self.book = HostBook()
        self.hosts = tuple(parse_host(text) for text in plan.hosts)
        self.saved = NOTHING_SAVED
        self.saved_before_growth: tuple[int, float] | None = None

    def run(self) -> Failure | None:
        """Run the ranks to their end; return why they failed, if they did.

        Raises:
            ConfigurationError: Hosts, discovery or interface cannot be used.
        """
        if self.plan.discovery is None:
            return Round(self.plan, self.hosts, self.say).run()
        self.hosts = discover(self.plan.discovery)
        Thread(target=self._look, daemon=True).start()
        fruitless, wait = 0, 0.0
        failure: Failure | None = None
        while True:
            usable = self._usable_hosts(wait)
            if failure is not None and sum(host.slots for host in usable) < self.plan.fewest_ranks:
                return replace(failure, message=f"{failure.message}; too few hosts are left")
            current = Round(self.plan, usable, self.say)
            self.saved_before_growth, wait = None, WAIT_FOR_HOSTS_S
            try:
                failure = current.run(self._on_event)
            except HostsChangedError as change:
                self.say(event="restarting", why=str(change))
                self.saved = max(self.saved, current.saved)
                continue
            if failure is None or not failure.retryable:
                return failure
            if current.saved > self.saved:
                fruitless = 0
                for name in set(current.place.values()) - {failure.host}:
                    self.book.worked(name)
            self.saved = max(self.saved, current.saved)
            fruitless += 1
            if fruitless > MOST_RESTARTS:
                return replace(
                    failure,
                    message=f"{fruitless} starts in a row failed without a new checkpoint; "
                    f"the last: {failure.message}",
                )
            if failure.host is not None:
                self.book.failed(failure.host, time.monotonic(), unreachable=failure.unreachable)
            self.say(event="restarting", why=failure.message)

    def _usable_hosts(self, wait: float) -> tuple[Host, ...]:
        """Return the hosts to start on, waiting up to `wait` seconds until there are enough of them."""
        deadline = time.monotonic() + wait
        while True:
            usable = self.book.usable(self.hosts, time.monotonic())
            enough = sum(host.slots for host in usable) >= self.plan.fewest_ranks
            if enough or time.monotonic() > deadline:
                return usable
            time.sleep(0.2)

    def _look(self) -> None:
        """Run the discovery script again and again; a run that fails changes nothing."""
        assert self.plan.discovery is not None  # noqa: S101 - asked of elastic trainings only
        while True:
            time.sleep(LOOK_S)
            try:
                self.hosts = discover(self.plan.discovery)
            except ConfigurationError as error:
                print(error, file=sys.stderr, flush=True)  # noqa: T201 - this process's log

    def _on_event(self, current: Round) -> None:
        """Compare the hosts that there are now with those of the round.

        Raises:
            HostsChangedError: One of the round is gone, or some were added and there is a new checkpoint.
        """
        listed = {host.name: host.slots for host in self.hosts}
        used = Counter(current.place.values())
        if gone := sorted(name for name, ranks in used.items() if listed.get(name, 0) < ranks):
            raise HostsChangedError(f"host {', '.join(gone)} was removed")
        usable = self.book.usable(self.hosts, time.monotonic())
        slots = min(sum(host.slots for host in usable), self.plan.most_ranks)
        if slots <= len(current.place):
            self.saved_before_growth = None
        elif self.saved_before_growth is None:
            self.saved_before_growth = current.saved
        elif current.saved > self.saved_before_growth:  # a restart costs what came after the checkpoint
            raise HostsChangedError(f"there are slots for {slots} ranks now")
