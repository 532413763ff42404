"""`floodmark deploy` on a real Prefect server, and what it deploys in the hands of a real worker."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import emit_event

from command import environment, floodmark, status
from prefect_api import prefect_api
from processes import wait_until_nothing_is_left_of
from test_loop_s3 import sensors

CONFIGURATION = """
model = "pump"
home = "{folder}/home"
time_column = "time"
label_column = "label"

[threshold]
target_alert_rate = 0.05

[detector.options]
epochs = 10

[training]
ranks = 1

[deployment]
source = "{folder}/incoming"
{more}
"""


def configured(folder: Path, more: str = "") -> Path:
    file = folder / "floodmark.toml"
    file.write_text(CONFIGURATION.format(folder=folder, more=more))
    return file


def deploy(file: Path, api: str) -> dict[tuple[str, str], str]:
    """What was done, by kind and name."""
    done = floodmark("deploy", "--json", "--config", file, cwd=file.parent, env={"PREFECT_API_URL": api})
    assert done.returncode == 0, done.stderr
    return {(item["kind"], item["name"]): item["outcome"] for item in json.loads(done.stdout)["changes"]}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('monitor_schedule = "0 0 30 2 *"', "that ever fires"),
        ('score_schedule = "hourly"', "is no cron expression"),
        ('timezone = "Mars/Olympus"', "IANA time zones"),
        ('control_pool = ""', "control_pool is ''"),
        ('schedule = "* * * * *"', "unknown key schedule"),
    ],
)
def test_wrong_settings_are_told_before_anything_is_asked(tmp_path: Path, more: str, said: str) -> None:
    done = floodmark("deploy", "--config", configured(tmp_path, more), cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_without_a_server_the_next_command_is_told(tmp_path: Path) -> None:
    file = configured(tmp_path)
    done = floodmark("deploy", "--config", file, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "PREFECT_API_URL is not set" in done.stderr
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = floodmark("deploy", "--config", file, cwd=tmp_path, env=nobody)
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not answer" in done.stderr


@contextmanager
def working(api: str, folder: Path) -> Iterator[None]:
    """Run a worker of each pool as a user would."""
    with (folder / "workers.log").open("wb") as log:
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"],
                env=environment({"PREFECT_API_URL": api, "PREFECT_HOME": str(folder / "worker")}),
                stdout=log,
                stderr=log,
                cwd=folder,
            )
            for pool in ("floodmark-control", "floodmark-training")
        ]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(60)


def runs_of(client: SyncPrefectClient, deployment: Any) -> list[FlowRun]:  # noqa: ANN401 - a UUID
    return client.read_flow_runs(flow_run_filter=FlowRunFilter(deployment_id={"any_": [deployment]}))


def test_deployments_are_created_once_changed_with_their_settings_and_run_by_events(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    never = "\n".join(f'{name}_schedule = ""' for name in ("retrain", "reconcile", "score"))
    with prefect_api(tmp_path / "server") as api, get_client(sync_client=True) as client:
        file = configured(tmp_path, never)
        made = deploy(file, api)
        assert set(made.values()) == {"created"}
        assert Counter(kind for kind, _ in made) == {
            "work pool": 2,
            "deployment": 4,
            "schedule": 1,
            "automation": 1,
        }
        for _ in range(3):  # each process has an order of sets of its own
            assert set(deploy(file, api).values()) == {"unchanged"}
        mistyped = floodmark(
            "deploy",
            *("--config", configured(tmp_path, never + '\ntraining_pool = "gpus"')),
            cwd=tmp_path,
            env={"PREFECT_API_URL": api},
        )
        assert (mistyped.returncode, mistyped.stdout) == (2, "")
        assert "no work pool gpus; there are floodmark-control, floodmark-training" in mistyped.stderr

        monitor = client.read_deployment_by_name("floodmark-monitor/pump")
        assert monitor.parameter_openapi_schema is not None
        assert monitor.parameter_openapi_schema["properties"]["source"]["description"]
        client.update_deployment_schedule(monitor.id, monitor.schedules[0].id, active=False)
        own = DeploymentScheduleCreate(schedule=CronSchedule(cron="1 1 1 1 *"), active=True)
        client.create_deployment_schedules(monitor.id, [own])
        changed = deploy(configured(tmp_path, never + '\nmonitor_schedule = "3 3 * * *"'), api)
        assert {key for key, outcome in changed.items() if outcome == "changed"} == {
            ("schedule", "floodmark-monitor/pump")
        }
        schedules = client.read_deployment_schedules(monitor.id)
        assert sorted((item.schedule.cron, item.active) for item in schedules) == [  # type: ignore[union-attr] # of this kind
            ("1 1 1 1 *", True),
            ("3 3 * * *", False),
        ]

        with working(api, tmp_path):
            train_by_events(client, tmp_path)
    wait_until_nothing_is_left_of(tmp_path)


def train_by_events(client: SyncPrefectClient, folder: Path) -> None:
    """Three windows ask for a first model; three events start one training."""
    for day in (1, 2, 3):
        sensors(day).to_parquet(folder / "incoming" / f"2026-03-0{day}.parquet")
    monitor, retrain = (
        client.read_deployment_by_name(f"floodmark-{name}/pump") for name in ("monitor", "retrain")
    )
    run, second = (
        client.create_flow_run_from_deployment(monitor.id, parameters={"reason": "a test"}) for _ in range(2)
    )
    until(lambda: all(is_final(client.read_flow_run(item.id)) for item in (run, second)), folder)
    both = [client.read_flow_run(item.id) for item in (run, second)]
    (ended,) = [item for item in both if item.state and not item.state.is_cancelled()]
    assert ended.name == "monitor pump: a test"
    assert ended.state is not None
    assert ended.state.is_completed(), ended.state.message
    for _ in range(2):
        emit_event(
            event="floodmark.drift.detected",
            resource={"prefect.resource.id": "floodmark.model.pump"},
            payload={"window": "2026-03-03"},
        )
    until(lambda: len(runs_of(client, retrain.id)) == 3, folder)
    until(lambda: all(map(is_final, runs_of(client, retrain.id))), folder)
    found = runs_of(client, retrain.id)
    assert [item.state.type.value for item in found if item.state] == ["COMPLETED"] * 3
    assert {item.parameters["window"] for item in found} == {"2026-03-03"}
    told = status(folder / "home", None, "--model", "pump")
    assert [training["outcome"] for training in told["trainings"]] == ["registered"]
    assert told["champion"]["version"] == "1"
    messages = sorted(str(item.state.message) for item in found if item.state)
    assert messages.count("nothing was owed") == 2, messages


def is_final(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_final()


def until(condition: Any, folder: Path, seconds: float = 240) -> None:  # noqa: ANN401 - a lambda
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, (folder / "workers.log").read_text()[-4000:]
        time.sleep(0.5)
