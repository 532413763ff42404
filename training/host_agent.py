"""`python -m training.host_agent`: starts, watches and ends the ranks of one host, for the supervisor.

Orders come on standard input and answers go to standard output, one JSON object a line; over ssh, that is the
connection. When the input ends, a signal comes, or no order has come for the time of the lease, every rank
and whatever it has started is killed. Nothing on a command line tells of the ranks' environment.
"""

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from training import heartbeat
from training.bound_child import adopt_descendants, die_with_parent, end_descendants, leave_when_told
from training.heartbeat import Sign
from training.launch_hosts import address_towards
from training.outcome import error_file

LEASE_S = 60
"""Without any order for as long, the supervisor is taken for lost; it sends a sign every few seconds."""
REPORT_S = 0.5
STACK_S = 2.0
LONGEST_LINE = 65_536


class Agent:
    """The ranks of this host. One thread does it all, so that forking is safe and lines keep their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.signs: dict[int, Sign] = {}
        self.output = Path()
        self.selector = selectors.DefaultSelector()
        self.ended = False
        self._read(sys.stdin.fileno(), self._obey, self._end)
        self.heartbeats = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heartbeats.bind(str(folder / heartbeat.SOCKET))
        self.heartbeats.setblocking(False)
        self.selector.register(self.heartbeats, selectors.EVENT_READ, self._listen)

    def run(self) -> None:
        """Serve until the supervisor is gone or says that it is enough."""
        say(said="ready")
        report_at = 0.0
        while not self.ended:
            for key, _ in self.selector.select(REPORT_S):
                key.data()
            self._reap()
            if time.monotonic() >= report_at:
                say(said="signs", signs=[asdict(self._sign(rank)) for rank in self.ranks])
                report_at = time.monotonic() + REPORT_S

    def _obey(self, line: str) -> None:
        signal.alarm(LEASE_S)
        order = json.loads(line)
        match order["do"]:
            case "start":
                self._start(order)
            case "dump":
                say(said="stacks", stacks={rank: self._stack(rank) for rank in self.ranks})

    def _start(self, order: dict[str, Any]) -> None:
        missing = [path for path in order["paths"] if not Path(path).exists()]
        if missing:
            say(said="missing", paths=missing)
            return
        if (reason := misnamed(order["rendezvous"])) is not None:
            say(said="unusable", reason=reason)
            return
        self.output = Path(order["output"])
        shared = order["environment"] | {
            heartbeat.AGENT: str(self.folder),
            "HOROVOD_GLOO_IFACE": interface_towards(order["rendezvous"]),
        }
        for place in order["places"]:
            rank = int(place["HOROVOD_RANK"])
            error_file(self.output, rank).unlink(missing_ok=True)
            process = subprocess.Popen(  # noqa: S603 - the supervisor's command
                order["command"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=order["paths"][0],
                env=shared | place,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread only
                process_group=0,
            )
            self.ranks[rank] = process
            self.signs[rank] = Sign(rank=rank, pid=process.pid)
            assert process.stdout is not None  # noqa: S101 - asked for above
            self._read(process.stdout.fileno(), partial(_say_line, rank))

    def _read(
        self, descriptor: int, take: Callable[[str], object], at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Call `take` with every line that arrives at `descriptor`, and `at_end` after the last."""
        rest = b""

        def read() -> None:
            nonlocal rest
            arrived = os.read(descriptor, LONGEST_LINE)
            *lines, rest = (rest + arrived).split(b"\n")
            if rest and (not arrived or len(rest) > LONGEST_LINE):
                lines, rest = [*lines, rest], b""
            for line in lines:
                take(line.decode(errors="replace"))
            if not arrived:
                self.selector.unregister(descriptor)
                at_end()

        self.selector.register(descriptor, selectors.EVENT_READ, read)

    def _end(self) -> None:
        self.ended = True

    def _listen(self) -> None:
        with suppress(BlockingIOError, ValueError, TypeError):  # whatever is no sign is not one
            sign = Sign(**json.loads(self.heartbeats.recv(LONGEST_LINE)))
            if sign.rank in self.ranks:
                self.signs[sign.rank] = sign

    def _sign(self, rank: int) -> Sign:
        """Return the last sign of a rank, and the processor time that it has used up to now to compute."""
        sign = self.signs[rank]
        with suppress(psutil.Error):
            threads = psutil.Process(sign.pid).threads()
            sign.cpu = sum(
                item.user_time + item.system_time for item in threads if item.id not in sign.polling
            )
        return sign

    def _reap(self) -> None:
        for rank, process in list(self.ranks.items()):
            if process.poll() is None:
                continue
            self._drain(process)
            del self.ranks[rank]
            try:
                error = json.loads(error_file(self.output, rank).read_bytes())
            except (OSError, ValueError):
                error = None
            say(said="exit", rank=rank, code=process.returncode, error=error)

    def _drain(self, process: "subprocess.Popen[bytes]") -> None:
        """Read what an ended rank has left in its pipe, which a process that it has started may keep open."""
        assert process.stdout is not None  # noqa: S101 - see _start
        descriptor = process.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(descriptor, selectors.EVENT_READ)
            while descriptor in self.selector.get_map() and ready.select(0):
                self.selector.get_key(descriptor).data()
        if descriptor in self.selector.get_map():
            self.selector.unregister(descriptor)
        process.stdout.close()

    def _stack(self, rank: int) -> str:
        """Ask a rank for its Python stack; a stopped one goes on for the moment that it needs."""
        stack, pid = self.folder / f"stack-{rank}", self.signs[rank].pid
        if not stack.exists():
            return "no stack: it had not started to watch itself"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
            os.kill(pid, signal.SIGCONT)
        deadline, text = time.monotonic() + STACK_S, ""
        while time.monotonic() < deadline and not (text and text == stack.read_text(errors="replace")):
            text = stack.read_text(errors="replace")
            time.sleep(0.1)
        return text or "no stack: it does not react, as if it waited for a disk or a GPU"


def _say_line(rank: int, text: str) -> None:
    say(said="line", rank=rank, text=text)


def say(**message: object) -> None:
    """Tell the supervisor."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def misnamed(rendezvous: str) -> str | None:
    """Return what is wrong with this host's own name, if ranks on other hosts could not reach it by that.

    Horovod 0.28.1 binds the exchange of its process sets to whatever address the host's own name has, not to
    HOROVOD_GLOO_IFACE (GlooContext::InitializeForProcessSet never sets the interface).
    """
    if rendezvous.startswith("127."):
        return None
    name, own = socket.gethostname(), address_towards(rendezvous)
    try:
        known = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        known = f"no address ({error})"
    if known == own:
        return None
    return f"its own name {name} stands for {known}, and other hosts reach it at {own}"


def interface_towards(address: str) -> str:
    """Return the name of this host's interface on the way to `address`, IPv4."""
    own = address_towards(address)
    for name, addresses in psutil.net_if_addrs().items():
        if any(item.address == own for item in addresses):
            return name
    raise OSError(f"no network interface has the address {own}")


def main() -> None:
    """Serve one supervisor."""
    leave_when_told()
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGTERM))
    signal.alarm(LEASE_S)
    adopt_descendants()
    folder = Path(tempfile.mkdtemp(prefix="floodmark-agent-"))
    try:
        Agent(folder).run()
    except BrokenPipeError:
        pass  # the supervisor is gone
    except Exception:  # noqa: BLE001 - it is told before the process is left without another word
        traceback.print_exc()
    finally:
        signal.alarm(0)
        end_descendants()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)  # the output may be gone, and flushing it must not fail


if __name__ == "__main__":
    main()
