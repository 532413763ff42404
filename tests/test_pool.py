"""Whatever happens to a training, no rank is left behind, and the reason is the failing rank's own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from prefect.utilities.timeout import timeout

from infra.launch_settings import LaunchSettings
from infra.pool import POOLS
from processes import (
    alive,
    descendants,
    is_rank,
    processes_of,
    rank_of,
    wait_until,
    wait_until_ended,
    wait_until_nothing_is_left_of,
)
from training.errors import RetryableError, TrainingFailedError
from training.types import Column, DetectorSpec, FeatureSchema, TrainingJob, TrainingRequest

ROOT = Path(__file__).resolve().parents[1]
SECRET = "do-not-show-this-1f9a"  # noqa: S105 - it opens nothing
ENDLESS: dict[str, float | int | str] = {"epochs": 10**6, "patience": 10**6}


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    generator = np.random.default_rng(0)
    rows = pd.DataFrame(generator.standard_normal((300, 3)), columns=list("abc"))
    rows.to_parquet(tmp_path / "training.parquet", index=False)
    rows.to_parquet(tmp_path / "calibration.parquet", index=False)
    request = TrainingRequest(
        model="pump",
        windows=(),
        schema=FeatureSchema(features=tuple(Column(name=name, kind="numeric") for name in "abc")),
        detector=DetectorSpec(options=ENDLESS),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=2,
        seed=0,
        champion_version=None,
    )
    return TrainingJob(
        request=request,
        training_rows=str(tmp_path / "training.parquet"),
        calibration_rows=str(tmp_path / "calibration.parquet"),
        reference_rows=str(tmp_path / "training.parquet"),
        held_out_rows=str(tmp_path / "training.parquet"),
        output=str(tmp_path / "output"),
    )


def test_a_rank_that_raises_is_quoted_with_its_own_traceback(job: TrainingJob, tmp_path: Path) -> None:
    # Row 1, and so rank 1 alone, holds text where the schema promises numbers.
    pd.DataFrame({"a": [None, "twelve", None], "b": 1.0, "c": 2.0}).to_parquet(
        str(job.training_rows), index=False
    )
    output = Path(job.output)
    output.mkdir()
    (output / "error-rank-0.json").write_text('{"type": "of an earlier attempt"}')
    started = time.monotonic()
    with pytest.raises(TrainingFailedError) as caught:
        POOLS["local"](job, tmp_path / "work", timeout=200)
    text = str(caught.value)
    assert "rank 1 failed: InvalidWindowError: the numeric column 'a' holds 'twelve'" in text
    assert "in fit_preprocessing" in text
    assert str(tmp_path / "work" / "logs" / "rank-1.log") in text
    assert time.monotonic() - started < 150  # at once, not by the timeout
    assert not processes_of(tmp_path)
    assert not (output / "result.json").exists()


def test_a_rank_that_is_killed_ends_the_others_and_may_be_retried(job: TrainingJob, tmp_path: Path) -> None:
    log = tmp_path / "work" / "logs" / "rank-0.log"

    def kill_a_rank() -> None:
        wait_until(lambda: log.exists() and '{"epoch": 2' in log.read_text(), 120)
        (second,) = [item for item in descendants() if is_rank(item) and rank_of(item) == 1]
        # What TensorFlow generates and, killed, would leave in the machine's temporary folder.
        assert list((tmp_path / "work" / "tmp").glob("__autograph_generated_file*.py"))
        second.kill()

    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill_a_rank)
        with pytest.raises(RetryableError, match="rank 1 on host localhost was ended by SIGKILL"):
            POOLS["local"](job, tmp_path / "work", timeout=200)
        killing.result()
    assert not processes_of(tmp_path)
    assert not (tmp_path / "work" / "tmp").exists()


def test_a_rank_that_is_killed_costs_an_elastic_training_nothing_it_had_kept(
    job: TrainingJob, tmp_path: Path
) -> None:
    script = tmp_path / "discover"
    script.write_text("#!/bin/sh\necho localhost:1; echo 127.0.0.1:1\n")
    script.chmod(0o755)
    options = ENDLESS | {"epochs": 60}
    request = replace(job.request, detector=DetectorSpec(options=options), world_size=2)
    settings = LaunchSettings(discovery_script=script, timeline=True)
    events: list[dict[str, Any]] = []

    def kill_a_rank_once(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "progress" and len([e for e in events if e["event"] == "progress"]) == 3:
            (second,) = [item for item in descendants() if is_rank(item) and rank_of(item) == 1]
            second.kill()

    result = POOLS["elastic"](
        replace(job, request=request),
        tmp_path / "work",
        timeout=200,
        settings=settings,
        report=kill_a_rank_once,
    )
    assert (result.request_id, result.world_size, result.epochs) == (request.id, 2, 60)
    assert [event["event"] for event in events if event["event"] != "progress"] == [
        "started",
        "restarting",
        "started",
    ]
    epochs = [event["figures"]["epoch"] for event in events if event["event"] == "progress"]
    assert sorted(set(epochs)) == list(range(1, 61))
    assert len(epochs) <= 61
    logs = tmp_path / "work" / "logs"
    for name in ("rank-0.log", "rank-1.log", "timeline-rank-0.json"):
        assert (logs / name).stat().st_size > 0
    assert not processes_of(tmp_path)


def test_a_timeout_ends_every_rank_and_may_be_retried(job: TrainingJob, tmp_path: Path) -> None:
    output = Path(job.output)
    output.mkdir()
    foreign = {
        "request_id": "of-another",
        "world_size": 2,
        "rows": 1,
        "epochs": 1,
        "loss": 0.0,
        "seconds": 1.0,
    }
    (output / "result.json").write_text(json.dumps(foreign))
    with pytest.raises(RetryableError, match="did not end within 12 s and was stopped"):
        POOLS["local"](job, tmp_path / "work", timeout=12)
    assert not processes_of(tmp_path)


def test_a_timeout_that_prefect_raises_from_another_thread_ends_every_rank(
    job: TrainingJob, tmp_path: Path
) -> None:
    """So it is raised where the alarm signal is taken, by an outer timeout or, as here, by the test's own."""
    assert signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    with pytest.raises(TimeoutError), timeout(6):
        POOLS["local"](job, tmp_path / "work", timeout=500)
    assert not processes_of(str(tmp_path))


def test_ranks_of_another_number_than_asked_for_are_refused(job: TrainingJob, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    Path(job.output).mkdir()
    command = [sys.executable, "-m", "training.job", str(tmp_path / "job.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 70, done.stderr  # terminal
    error = json.loads((Path(job.output) / "error-rank-0.json").read_text())
    assert error["message"].startswith("1 ranks were started for a training that asks for 2")
    assert error["retryable"] is False


@pytest.fixture
def control_plane(job: TrainingJob, tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process of its own that trains without end, with a secret in its environment."""
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    program = """if True:
        import sys
        from pathlib import Path
        from pydantic import TypeAdapter
        from infra.pool import POOLS
        from training.types import TrainingJob
        folder = Path(sys.argv[1])
        job = TypeAdapter(TrainingJob).validate_json((folder / "job.json").read_bytes())
        POOLS["local"](job, folder / "work", timeout=1000)"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"AWS_SECRET_ACCESS_KEY": SECRET, "PREFECT_API_KEY": SECRET},
    )
    yield process
    process.kill()
    process.wait()


def test_ranks_show_no_secret_and_die_with_the_process_that_started_them(
    control_plane: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    log = tmp_path / "work" / "logs" / "rank-0.log"
    wait_until(lambda: log.exists() and '{"epoch": 2' in log.read_text(), 120)

    supervised = descendants(control_plane.pid)
    ranks = [item for item in supervised if is_rank(item)]
    assert len(supervised) == 5  # one that binds, the supervisor, the agent and two ranks
    assert sorted(map(rank_of, ranks)) == [0, 1]
    for item in supervised:
        assert SECRET not in " ".join(item.cmdline())
        assert SECRET not in item.environ().values()
    connections = [connection for item in supervised for connection in item.net_connections("inet")]
    assert {connection.laddr.ip for connection in connections} == {"127.0.0.1"}
    listening = [item for item in supervised if any(c.status == "LISTEN" for c in item.net_connections())]
    assert len(listening) == 1  # the rendezvous, on loopback as all else

    control_plane.send_signal(signal.SIGKILL)
    control_plane.wait()
    wait_until_ended(supervised)
    wait_until_nothing_is_left_of(tmp_path)


FAMILY = "(setsid sleep 987654 &); setsid sh -c 'sleep 987655; true' & sleep 987656"
"""Five processes: a shell with two children, and in sessions of their own an orphan and a grandchild."""


Supervise = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    """Start a command under the supervisor, for a parent that is this process unless told otherwise."""
    started = []

    def start(*command: str, parent: int = os.getpid()) -> "subprocess.Popen[bytes]":
        supervisor = [sys.executable, "-m", "training.bound_child", str(parent)]
        started.append(subprocess.Popen([*supervisor, *command], cwd=ROOT))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_supervisor_told_to_end_takes_all_descendants_with_it(
    supervise: Supervise, number: signal.Signals
) -> None:
    supervisor = supervise("sh", "-c", FAMILY)
    wait_until(lambda: len(descendants(supervisor.pid)) == 5)
    family = descendants(supervisor.pid)
    supervisor.send_signal(number)
    assert supervisor.wait(20) == 128 + number
    wait_until_ended(family)


def test_what_a_finished_command_leaves_behind_is_ended_and_its_exit_code_kept(
    supervise: Supervise, tmp_path: Path
) -> None:
    assert supervise("sh", "-c", f"setsid sleep 987654 & echo $! > {tmp_path}/pid; exit 3").wait(30) == 3
    left = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(left) or not alive(psutil.Process(left)))


def test_a_supervisor_whose_parent_is_gone_already_starts_nothing(
    supervise: Supervise, tmp_path: Path
) -> None:
    assert supervise("touch", str(tmp_path / "started"), parent=1).wait(30) == 128 + signal.SIGTERM
    assert not (tmp_path / "started").exists()


def test_a_killed_supervisor_does_not_leave_its_command(supervise: Supervise) -> None:
    supervisor = supervise("sleep", "987657")
    wait_until(lambda: [item.name() for item in descendants(supervisor.pid)] == ["sleep"])
    (child,) = descendants(supervisor.pid)
    supervisor.kill()
    supervisor.wait()
    wait_until_ended([child])
