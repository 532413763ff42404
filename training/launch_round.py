"""One run of the ranks on given hosts, from their start to their end, whatever that is."""

import json
import math
import shlex
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import TextIO

from training.errors import ConfigurationError
from training.heartbeat import Sign
from training.launch_agents import Agent, Event
from training.launch_hosts import is_this_machine
from training.launch_plan import Failure, Host, LaunchPlan
from training.launch_rendezvous import Rendezvous, assign, environment_of, meeting_address
from training.launch_watch import Stall, Watch
from training.outcome import LOST_PEER

PING_S = 5.0
SETTLE_S = 0.7
"""After a rank has said what it failed of, how long others may take to say something worse."""
CAUSE_S = 8.0
"""After a rank has lost a peer, how long that peer may take to say why."""
STACKS_S = 4.0
TAIL_LINES = 30
NOTHING_SAVED = (0, 0.0)
"""Epoch and step of the last checkpoint; the step of a whole epoch is infinite."""


class Round:
    """The ranks of one start; `say` passes on what rank 0 reports of its progress."""

    def __init__(self, plan: LaunchPlan, hosts: Sequence[Host], say: Callable[..., None]) -> None:
        self.plan, self.say = plan, say
        self.events: Queue[Event] = Queue()
        self.slots = assign(hosts, plan.fewest_ranks, plan.most_ranks)
        self.place = {slot.rank: slot.hostname for slot in self.slots}
        self.tails: dict[int, deque[str]] = {rank: deque(maxlen=TAIL_LINES) for rank in self.place}
        self.exits: dict[int, Event] = {}
        self.saved = NOTHING_SAVED
        self.agents: dict[str, Agent] = {}
        self.logs: dict[int, TextIO] = {}
        now = time.monotonic()
        self.watch = Watch(self.place, plan.watchdog_seconds, now)
        self.heard = dict.fromkeys(self.place.values(), now)

    def run(self, look: Callable[["Round"], None] = lambda _: None) -> Failure | None:
        """Start the ranks and wait for their end; return why they failed, if they did.

        `look` is called again and again, and may end the round by an exception.

        Raises:
            ConfigurationError: The hosts or the interface cannot be used.
        """
        names = list(dict.fromkeys(self.place.values()))
        others = [name for name in names if not is_this_machine(name)]
        address = meeting_address(others, self.plan.interface)
        with ExitStack() as stack:
            port = stack.enter_context(Rendezvous(address, self.slots))
            stack.callback(self._end)
            for rank in self.place:
                path = Path(self.plan.logs) / f"rank-{rank}.log"
                self.logs[rank] = stack.enter_context(path.open("a", errors="replace"))
            for name in names:
                self.agents[name] = Agent(name, self.plan.ssh, self.events)
            for name, agent in self.agents.items():
                agent.tell(
                    do="start",
                    command=self.plan.command,
                    environment=self.plan.environment,
                    paths=self.plan.paths,
                    output=self.plan.output,
                    rendezvous=address,
                    places=[
                        environment_of(slot, self.plan, address, port)
                        for slot in self.slots
                        if slot.hostname == name
                    ],
                )
            self.say(event="started", ranks=len(self.place), hosts=names)
            return self._serve(look)

    def _serve(self, look: Callable[["Round"], None]) -> Failure | None:
        ping_at, decide_at = 0.0, math.inf
        while True:
            now = time.monotonic()
            if now >= ping_at:
                for agent in self.agents.values():
                    agent.tell(do="ping")
                ping_at = now + PING_S
            with suppress(Empty):
                if failure := self._take(self.events.get(timeout=0.2), time.monotonic()):
                    return failure
            now = time.monotonic()
            if failed := [item for item in self.exits.values() if item["code"] != 0]:
                lost_peers_only = all(map(_lost_peer, failed))
                decide_at = min(decide_at, now + (CAUSE_S if lost_peers_only else SETTLE_S))
                if len(self.exits) == len(self.place) or now >= decide_at:
                    return self._cause(failed)
            elif len(self.exits) == len(self.place):
                return None
            elif stall := self.watch.stall(now):
                return self._stalled(stall)
            elif failure := self._lost_host(now):
                return failure
            look(self)

    def _take(self, event: Event, now: float) -> Failure | None:
        """Take in what an agent says; return the failure, if it is one of the whole host."""
        host = event["host"]
        self.heard[host] = now
        match event["said"]:
            case "line":
                self._log(event["rank"], event["text"])
            case "signs":
                for fields in event["signs"]:
                    sign = Sign(**fields)
                    self.watch.observe(sign, now)
            case "exit":
                self.exits[event["rank"]] = event
                self.watch.forget(event["rank"])
            case "missing":
                return Failure(
                    message=f"host {host} lacks {', '.join(event['paths'])}",
                    hint="The training's files must be at the same path on every host: use a shared folder.",
                    host=host,
                    unreachable=True,
                )
            case "unusable":
                return Failure(
                    message=f"host {host} cannot run ranks together with others: {event['reason']}",
                    hint="Give its name that address, first of all in its /etc/hosts.",
                    host=host,
                    unreachable=True,
                )
            case "gone":
                return self._gone(self.agents[host])
        return None

    def _log(self, rank: int, text: str) -> None:
        self.tails[rank].append(text)
        self.logs[rank].write(text + "\n")
        self.logs[rank].flush()
        if rank == 0 and text.startswith('{"epoch"'):
            with suppress(ValueError):
                figures = json.loads(text)
                self.say(event="progress", figures=figures)
                if figures.get("checkpoint"):
                    self.saved = (figures["epoch"], figures.get("step", math.inf))

    def _cause(self, failed: Sequence[Event]) -> Failure:
        """Return what the rank said that failed by itself, not one that lost a peer; terminal ones first."""
        event = min(failed, key=lambda item: (_lost_peer(item), _retryable(item), item["rank"]))
        rank, error = event["rank"], event["error"]
        log = f"Its log is {self.plan.logs}/rank-{rank}.log"
        if error is not None:
            message = f"rank {rank} failed: {error['type']}: {error['message']}"
            hint = f"No model was written. {log}, host {event['host']}.\n{error['traceback']}"
        else:
            code = event["code"]
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            message = f"rank {rank} on host {event['host']} {how}, and no rank said why"
            tail = "\n".join(self.tails[rank])
            hint = f"It was killed from outside, or out of memory. {log}, which ends:\n{tail}"
        wrong = error is not None and error["type"] == ConfigurationError.__name__
        return Failure(
            message=message,
            hint=hint,
            retryable=_retryable(event),
            host=event["host"],
            configuration=wrong,
        )

    def _stalled(self, stall: Stall) -> Failure:
        """Describe ranks that stand still, with their stacks."""
        seconds, frozen = self.plan.watchdog_seconds, stall.frozen
        who = frozen or tuple(self.watch.seen)
        where = "; ".join(f"rank {rank} on host {self.place[rank]} {self.watch.where(rank)}" for rank in who)
        if frozen:
            message = f"frozen, without a sign of life for {seconds:g} s: {where}"
        else:
            message = f"out of step: all ranks are alive and none made progress for {seconds:g} s: {where}"
        stacks = self._stacks({self.place[rank] for rank in who})
        shown = "\n".join(f"stack of rank {rank}:\n{stacks.get(str(rank), 'none came')}" for rank in who)
        longer = "[training] watchdog_seconds may be larger"
        hint = f"The ranks were ended; {longer}. Logs: {self.plan.logs}.\n{shown}"
        return Failure(message=message, hint=hint, host=self.place[who[0]] if frozen else None)

    def _stacks(self, hosts: set[str]) -> dict[str, str]:
        """Ask the agents for their ranks' stacks, briefly."""
        stacks: dict[str, str] = {}
        for host in hosts:
            self.agents[host].tell(do="dump")
        deadline = time.monotonic() + STACKS_S
        while hosts and (left := deadline - time.monotonic()) > 0:
            try:
                event = self.events.get(timeout=left)
            except Empty:
                break
            if event["said"] == "stacks":
                hosts = hosts - {event["host"]}
                stacks |= event["stacks"]
            else:
                self._take(event, time.monotonic())
        return stacks

    def _gone(self, agent: Agent) -> Failure | None:
        running = [rank for rank, host in self.place.items() if host == agent.host and rank not in self.exits]
        if agent.ready and not running:
            return None
        tried = shlex.join(agent.command)
        if agent.ready:
            message = f"the connection to host {agent.host} was lost, with its ranks {running}"
        else:
            message = f"host {agent.host} could not be reached, or its agent not started"
        return Failure(
            message=f"{message}: {agent.complaint()}",
            hint=f"Try it by hand: {tried}",
            host=agent.host,
            unreachable=True,
        )

    def _lost_host(self, now: float) -> Failure | None:
        for host, heard in self.heard.items():
            running = any(self.place[rank] == host for rank in self.watch.seen)
            if running and now - heard >= self.plan.watchdog_seconds:
                return Failure(
                    message=f"host {host} gave no answer for {self.plan.watchdog_seconds:g} s",
                    hint=f"Try it by hand: {shlex.join(self.agents[host].command)}",
                    host=host,
                    unreachable=True,
                )
        return None

    def _end(self) -> None:
        """End every rank on every host."""
        for agent in self.agents.values():
            agent.close()
        for agent in self.agents.values():
            agent.wait()


def _lost_peer(event: Event) -> bool:
    return event["error"] is not None and event["error"]["type"] == LOST_PEER


def _retryable(event: Event) -> bool:
    return event["error"] is None or bool(event["error"]["retryable"])
