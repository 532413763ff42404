"""Trainings under a real Prefect worker: whatever ends a flow run ends its ranks, and the next goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.flow_engine import FlowRunTimeoutError
from prefect.states import Cancelling

from command import environment
from flows.loop import run_loop
from flows.training_events import listen
from infra.ledger import Ledger
from infra.local_store import LocalStore
from infra.prefect_server import API_URL
from infra.settings import Settings, load_settings
from monitoring.records import Record, ReleaseRecord
from namespaces import PORT, PrivateNetwork, private_network
from prefect_api import prefect_api
from processes import wait_until_ended

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:DeprecationWarning"  # MLflow 3.17 asks SQLAlchemy 2.1 for it
)

ROOT = Path(__file__).resolve().parents[1]
POOL = "floodmark-training"
DEPLOYED = """\
from pathlib import Path

from prefect import flow

from flows.loop import run_loop
from infra.settings import load_settings


@flow(name="deployed")
def deployed(configuration: str, source: str) -> None:
    run_loop(load_settings(Path(configuration), {}), source, follow=False, report=lambda *_: None)
"""
CONFIGURATION = """\
home = "{home}"
[retraining]
bootstrap_windows = 1
min_rows = 100
[detector]
options = {{ epochs = 1000000, patience = 1000000 }}
[training]
pool = "hosts"
hosts = {hosts}
ssh_port = {port}
ssh_identity_file = "{keys}/user_key"
ssh_known_hosts = "{keys}/known_hosts"
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[PrivateNetwork]:
    with private_network(tmp_path / "network", hosts=2) as made:
        yield made


@pytest.fixture
def settings(network: PrivateNetwork, tmp_path: Path) -> Settings:
    """Settings of an endless training on two hosts, with one window to be trained on."""
    (tmp_path / "home").mkdir()
    (tmp_path / "incoming").mkdir()
    rows = np.random.default_rng(0).standard_normal((300, 3))
    pd.DataFrame(rows, columns=list("abc")).to_csv(tmp_path / "incoming" / "day-1.csv", index=False)
    file = tmp_path / "floodmark.toml"
    hosts = json.dumps([f"{host.address}:1" for host in network.hosts])
    file.write_text(CONFIGURATION.format(home=tmp_path / "home", hosts=hosts, port=PORT, keys=network.folder))
    return load_settings(file, {})


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncPrefectClient]:
    with prefect_api(tmp_path / "prefect"), get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def deployment(client: SyncPrefectClient, settings: Settings, tmp_path: Path) -> UUID:
    """A flow on a work pool of type process, as the client of a team would deploy it."""
    client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    (tmp_path / "deployed.py").write_text(DEPLOYED)
    parameters = {"configuration": str(tmp_path / "floodmark.toml"), "source": str(tmp_path / "incoming")}
    return client.create_deployment(
        flow_id=client.create_flow_from_name("deployed"),
        name=settings.model,
        work_pool_name=POOL,
        path=str(tmp_path),
        entrypoint="deployed.py:deployed",
        parameters=parameters,
    )


@contextmanager
def worker(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [
        str(Path(sys.executable).parent / "prefect"),
        "worker",
        "start",
        "--pool",
        POOL,
        "--name",
        "gpu-a",
    ]
    own = {API_URL: os.environ[API_URL], "PREFECT_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(own), stdout=log, stderr=log)
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def epochs(home: Path) -> list[int]:
    """Return the epochs that rank 0 has told of, over all starts of the training."""
    logs = list(home.rglob("rank-0.log"))
    told = logs[0].read_text().splitlines() if logs else []
    return [json.loads(line)["epoch"] for line in told if line.startswith('{"epoch"') and line.endswith("}")]


def ranks(network: PrivateNetwork) -> int:
    processes = [process for host in network.hosts for process in host.processes()]
    return sum(process.cmdline()[1:3] == ["-m", "training.job"] for process in processes)


def records(home: Path) -> list[Record]:
    return [entry.record for entry in Ledger.of(LocalStore(home), "floodmark").load().entries]


@pytest.mark.timeout(900, method="thread")  # the other method takes the alarm that Prefect needs
def test_a_run_that_is_cancelled_or_loses_its_worker_or_its_time_leaves_no_rank_and_the_next_goes_on(
    client: SyncPrefectClient, deployment: UUID, settings: Settings, network: PrivateNetwork, tmp_path: Path
) -> None:
    def started(run: UUID, after: int) -> list[psutil.Process]:
        """Wait until a run's ranks have trained some epochs more; return its processes here."""
        trained = lambda: len(epochs(settings.home)) >= after + 3  # noqa: E731
        assert wait_until(trained, 300), (
            f"{client.read_flow_run(run).state} {(tmp_path / 'worker.log').read_text()}"
        )
        assert ranks(network) == 2
        return psutil.Process(process.pid).children(recursive=True)

    def assert_ended(processes: list[psutil.Process], released: int) -> None:
        assert wait_until(lambda: not any(host.processes() for host in network.hosts), 30)
        wait_until_ended(processes, 60)
        assert wait_until(lambda: len(released_steps()) == released, 20)
        assert set(released_steps()) == {"training on day-1"}

    def released_steps() -> list[str]:
        return [record.step for record in records(settings.home) if isinstance(record, ReleaseRecord)]

    def state(run: UUID) -> StateType | None:
        return client.read_flow_run(run).state_type

    def run_out_of_time(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and ranks(network) == 2:
            signal.setitimer(signal.ITIMER_REAL, 0.1)  # the alarm that Prefect has set for later

    with worker(tmp_path) as process:  # which takes its time to start
        listen(run_out_of_time)
        limited = run_loop.with_options(timeout_seconds=500)
        with pytest.raises(FlowRunTimeoutError):
            limited(settings, str(tmp_path / "incoming"), follow=False, report=lambda *_: None)
        assert_ended([], released=1)

        before = epochs(settings.home)  # a checkpoint may be one epoch ahead of the log
        cancelled = client.create_flow_run_from_deployment(deployment).id
        processes = started(cancelled, after=len(before))
        assert 0 <= epochs(settings.home)[len(before)] - before[-1] <= 2, "from the checkpoint"
        nested = [item.id for item in client.read_flow_runs() if item.name.startswith("retrain")]
        (running,) = [item for item in nested if state(item) is StateType.RUNNING]
        client.set_flow_run_state(running, Cancelling())  # as the button in the UI does
        assert_ended(processes, released=2)

        before = epochs(settings.home)
        orphaned = client.create_flow_run_from_deployment(deployment).id
        processes = started(orphaned, after=len(before))
        assert 0 <= epochs(settings.home)[len(before)] - before[-1] <= 2, "from the checkpoint"
        assert wait_until(lambda: state(cancelled) is StateType.CANCELLED, 120)
        assert state(running) is StateType.CANCELLED
        process.kill()
        assert_ended(processes, released=3)
        assert state(orphaned) is StateType.CRASHED
