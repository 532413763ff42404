"""Real ranks under the supervisor: frozen, out of step, killed, and on hosts that come and go."""

import json
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra import rank_environment
from infra.supervisor import supervise
from processes import descendants, processes_of, wait_until, wait_until_ended
from training.errors import RetryableError
from training.launch_plan import LaunchPlan

SCRIPT = Path(__file__).with_name("launched_rank.py")


def rank_process(folder: Path, rank: int) -> psutil.Process:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[2:3] == [str(folder)] and process.environ()["HOROVOD_RANK"] == str(rank):
                return process
    raise LookupError(rank)


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    return LaunchPlan(
        command=(sys.executable, str(SCRIPT), str(tmp_path), "normal"),
        environment=rank_environment.of_ranks([])
        | {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
        | {"TMPDIR": str(tmp_path)},
        paths=(str(tmp_path),),
        output=str(tmp_path),
        logs=str(tmp_path / "logs"),
        hosts=("localhost:1", "127.0.0.1:1"),
        discovery=None,
        fewest_ranks=2,
        most_ranks=2,
        ssh=("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=3"),
        interface=None,
        watchdog_seconds=15,
        exchange_seconds=300,
    )


def epoch_of(folder: Path) -> int:
    try:
        return int(json.loads((folder / "checkpoint.json").read_text())["epoch"])
    except FileNotFoundError:
        return 0


def test_a_frozen_rank_is_ended_with_its_place_and_stack(plan: LaunchPlan, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(supervise, plan, tmp_path / "log", 150, lambda _: None)
        wait_until(lambda: epoch_of(tmp_path) >= 8)
        rank_process(tmp_path, 1).send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        failure = running.result(60)
    assert failure is not None
    assert failure.message.startswith(
        "frozen, without a sign of life for 15 s: rank 1 on host 127.0.0.1 in phase"
    )
    assert "steps done" in failure.message
    assert "launched_rank.py" in failure.hint
    assert failure.retryable
    assert failure.host == "127.0.0.1"
    assert time.monotonic() - stopped < 45
    assert not processes_of(tmp_path)


def test_ranks_out_of_step_are_ended_with_all_their_stacks(plan: LaunchPlan, tmp_path: Path) -> None:
    apart = replace(plan, command=(*plan.command[:-1], "out-of-step"), hosts=("localhost:2",))
    failure = supervise(apart, tmp_path / "log", 150, lambda _: None)
    assert failure is not None
    assert failure.message.startswith(
        "out of step: all ranks are alive and none made progress for 15 s: rank 0"
    )
    assert "rank 1 on host localhost in phase 'steps', 2 steps done" in failure.message
    waiting, sleeping = failure.hint.split("stack of rank 0:")[1].split("stack of rank 1:")
    assert "in gather" in waiting
    assert "in gather" not in sleeping
    assert "launched_rank.py" in sleeping
    assert not processes_of(tmp_path)


def test_a_killed_supervisor_leaves_nothing_and_is_no_result(plan: LaunchPlan, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(supervise, plan, tmp_path / "log", 150, lambda _: None)
        wait_until(lambda: epoch_of(tmp_path) >= 1)
        (supervisor,) = [item for item in descendants() if item.cmdline()[1:] == ["-m", "training.launch"]]
        started = descendants(supervisor.pid)
        assert len(started) == 4  # two agents with a rank each
        supervisor.kill()
        with pytest.raises(RetryableError, match="ended without an outcome"):
            running.result(60)
    assert not processes_of(tmp_path)
    wait_until_ended(started)


@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.2, 0.4, 0.8, 2.5])
def test_a_training_may_be_stopped_at_any_moment_of_its_start(
    plan: LaunchPlan, tmp_path: Path, seconds: float
) -> None:
    before = set(descendants())
    with pytest.raises(RetryableError, match="did not end within"):
        supervise(plan, tmp_path / "log", seconds, lambda _: None)
    assert not processes_of(tmp_path)
    wait_until_ended(set(descendants()) - before)


def test_a_missing_horovod_is_said(plan: LaunchPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "horovod.py").write_text("raise ImportError('No module named horovod')\n")
    there = rank_environment.of_supervisor()
    there["PYTHONPATH"] = f"{tmp_path}:{there['PYTHONPATH']}"
    monkeypatch.setattr(rank_environment, "of_supervisor", lambda: there)
    failure = supervise(plan, tmp_path / "log", 60, lambda _: None)
    assert failure is not None
    assert failure.message == "Horovod's launcher cannot be loaded: No module named horovod"
    assert not failure.retryable


def test_a_host_that_cannot_be_reached_is_named_with_what_was_tried(plan: LaunchPlan, tmp_path: Path) -> None:
    away = replace(plan, hosts=("localhost:1", "192.0.2.1:1"), ssh=("false", "ssh"), interface="lo")
    failure = supervise(away, tmp_path / "log", 60, lambda _: None)
    assert failure is not None
    assert failure.message.startswith("host 192.0.2.1 could not be reached, or its agent not started")
    assert "Try it by hand: false ssh 192.0.2.1 'env PYTHONPATH=" in failure.hint
    assert not processes_of(tmp_path)


def test_a_host_that_lacks_a_path_is_named_with_it(plan: LaunchPlan, tmp_path: Path) -> None:
    lacking = replace(plan, paths=(*plan.paths, str(tmp_path / "rows.parquet")))
    failure = supervise(lacking, tmp_path / "log", 60, lambda _: None)
    assert failure is not None
    assert failure.message in {
        f"host {name} lacks {tmp_path}/rows.parquet" for name in ("localhost", "127.0.0.1")
    }


def test_an_elastic_training_goes_on_as_ranks_die_and_hosts_go_and_come(
    plan: LaunchPlan, tmp_path: Path
) -> None:
    hosts, script = tmp_path / "hosts", tmp_path / "discover"
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o755)
    both, one = "localhost:1\n127.0.0.1:1\n", "localhost:1\n"
    hosts.write_text(both)
    elastic = replace(plan, hosts=(), discovery=str(script), fewest_ranks=1, watchdog_seconds=30)
    events: list[dict[str, Any]] = []

    def starts() -> list[int]:
        return [event["ranks"] for event in events if event["event"] == "started"]

    def trains_after(start: int) -> None:
        wait_until(lambda: len(starts()) == start)
        began = epoch_of(tmp_path)
        wait_until(lambda: epoch_of(tmp_path) >= began + 2)

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(supervise, elastic, tmp_path / "log", 280, events.append)
        trains_after(1)
        rank_process(tmp_path, 1).kill()
        trains_after(2)
        hosts.write_text(one)
        trains_after(3)
        hosts.write_text(both)
        trains_after(4)
        (tmp_path / "finish").touch()
        assert running.result(60) is None
    assert starts() == [2, 2, 1, 2]
    reasons = [event["why"] for event in events if event["event"] == "restarting"]
    assert "rank 1 on host 127.0.0.1 was ended by SIGKILL" in reasons[0]
    assert reasons[1:] == ["host 127.0.0.1 was removed", "there are slots for 2 ranks now"]
    # No epoch is lost but one that had not ended, and none is counted twice: the weight is their number.
    weights = [json.loads((tmp_path / f"weight-{rank}.json").read_text()) for rank in range(2)]
    assert weights[0] == weights[1]
    size, epoch, weight = weights[0]
    assert (size, weight) == (2, pytest.approx(epoch))
    reported = [event["figures"]["epoch"] for event in events if event["event"] == "progress"]
    # The line of an epoch is lost with a rank that is ended between its checkpoint and its report.
    assert len(set(range(1, int(epoch) + 1)) - set(reported)) <= 3
    assert len(reported) <= epoch + 3  # an epoch whose checkpoint had just been written, at most, each time
    assert not processes_of(tmp_path)
