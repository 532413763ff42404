"""Starts a training's ranks with Open MPI's mpirun, for a Horovod that was compiled with MPI."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter

from training import bound_child
from training.errors import ConfigurationError, RetryableError
from training.launch_hosts import address_towards, is_this_machine
from training.launch_plan import Failure, LaunchPlan, parse_host
from training.outcome import ERRORS, LOST_PEER, RankError

GRACE_S = 15.0
TAIL_LINES = 30
SWITCHES = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}


def run_with_mpi(
    plan: LaunchPlan, log: Path, timeout: float, report: Callable[[dict[str, Any]], None]
) -> Failure | None:
    """Run a plan's ranks to their end; return why they failed, if they did. In the end none of them is left.

    Raises:
        ConfigurationError: There is no mpirun.
        RetryableError: The time ran out.
    """
    bound = (sys.executable, "-P", str(Path(bound_child.__file__)), str(os.getpid()))
    command = mpirun_command(plan)
    report(
        {"event": "started", "ranks": plan.most_ranks, "hosts": [host.split(":")[0] for host in plan.hosts]}
    )
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 - a command of our own
            [*bound, *command],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=plan.environment | SWITCHES,
            process_group=0,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise RetryableError(
                f"the training did not end within {timeout:g} s and was stopped",
                hint=f"No model was written. Its logs are {plan.logs}; allow more time, or more ranks.",
            ) from error
        finally:
            process.terminate()  # it ends mpirun and with it the ranks on all hosts
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return None if code == 0 else _failure(plan, log, code)


def mpirun_command(plan: LaunchPlan) -> list[str]:
    """Return the command. It names the variables that ranks are given, and no value of one.

    Raises:
        ConfigurationError: There is no mpirun.
    """
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise ConfigurationError(
            "[training] controller is 'mpi', and there is no mpirun",
            hint="Debian: apt-get install libopenmpi-dev openmpi-bin, then make mpi",
        )
    hosts = [parse_host(text) for text in plan.hosts]
    others = [host.name for host in hosts if not is_this_machine(host.name)]
    network = plan.interface or (_network_of(address_towards(others[0])) if others else "lo")
    settings = {
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        "plm_rsh_agent": shlex.join(plan.ssh),
        "btl": "self,vader,tcp",
        "orte_tmpdir_base": tempfile.gettempdir(),  # of sockets, whose paths are short; TMPDIR is the ranks'
        "pml": "ob1",
    }
    return [
        mpirun,
        *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        *("-np", str(plan.most_ranks), "--bind-to", "none", "--output-filename", plan.logs),
        *("--host", ",".join(map(str, hosts))),
        *(part for name, value in settings.items() for part in ("--mca", name, value)),
        *(part for name in sorted(plan.environment | SWITCHES) for part in ("-x", name)),
        *plan.command,
    ]


def _network_of(address: str) -> str:
    """Return the network of one of this machine's own addresses, as in 10.0.0.1/24."""
    for items in psutil.net_if_addrs().values():
        for item in items:
            if item.family == socket.AF_INET and item.address == address:
                ones = sum(int(part).bit_count() for part in str(item.netmask).split("."))
                return f"{address}/{ones}"
    raise ConfigurationError(f"no network interface has the address {address}")


def _failure(plan: LaunchPlan, log: Path, code: int) -> Failure:
    """Return what the rank said that failed by itself, not one that lost a peer; terminal ones first."""
    reader = TypeAdapter(RankError)
    errors = [reader.validate_json(path.read_bytes()) for path in sorted(Path(plan.output).glob(ERRORS))]
    causes = [error for error in errors if error.type != LOST_PEER]
    if not causes:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
        return Failure(
            message=f"mpirun ended with exit code {code}, and no rank said why",
            hint=f"A rank was killed from outside, or could not be started. The end of {log}:\n{tail}",
        )
    cause = min(causes, key=lambda error: (error.retryable, error.rank))
    return Failure(
        message=f"rank {cause.rank} failed: {cause.type}: {cause.message}",
        hint=f"No model was written. The logs are {plan.logs}.\n{cause.traceback}",
        retryable=cause.retryable,
    )
