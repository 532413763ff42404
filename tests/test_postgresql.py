"""A team's installation on one machine: `floodmark up` with PostgreSQL and artifacts in S3."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3
import httpx
import numpy as np
import pandas as pd
import psutil

from command import FLOODMARK, environment, floodmark
from postgresql_server import serving_postgresql
from processes import wait_until_nothing_is_left_of
from s3_server import S3Server, free_ports

PATIENCE, LOOP_PATIENCE = 240, 400
CONFIGURATION = """
time_column = "time"

[services]
prefect_port = {}
mlflow_port = {}
scorer_port = {}
receiver_port = {}
metrics_port = {}

[deployment]
source = "{}"
monitor_schedule = ""
retrain_schedule = ""
reconcile_schedule = ""
score_schedule = ""

[retraining]
bootstrap_windows = 1
min_rows = 500

[training]
ranks = 1

[detector.options]
epochs = 5
"""


def write_window(folder: Path) -> None:
    folder.mkdir()
    generator = np.random.default_rng(1)
    load = generator.gamma(4.0, 10.0, 900)
    times = pd.date_range("2026-03-01", periods=900, freq="1min", tz="UTC")
    heat = 40 + 0.5 * load + generator.normal(0, 1, 900)
    pd.DataFrame({"time": times, "load": load, "heat": heat}).to_parquet(folder / "2026-03-01.parquet")


@contextmanager
def up(folder: Path, variables: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """`floodmark up` with everything ready; ended as a service manager ends it."""
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(
            [FLOODMARK, "up", "--json", "--home", folder / "home", "--config", folder / "floodmark.toml"],
            cwd=folder,
            env=environment(variables),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            told = []
            for line in process.stdout:
                told.append(json.loads(line))
                if told[-1]["service"] == "all":
                    break
            assert told, (folder / "up.log").read_text()
            assert told[-1]["state"] == "ready", (told, (folder / "up.log").read_text())
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def has_champion(home: Path, configuration: Path, client: dict[str, str]) -> bool:
    """Whether a champion serves by now; there is no ledger yet at first."""
    told = floodmark(
        "status", "--json", "--home", home, "--config", configuration, cwd=home.parent, env=client
    )
    return told.returncode == 0 and json.loads(told.stdout)["champion"] is not None


def test_the_small_loop_runs_on_postgresql_and_s3(tmp_path: Path, s3_server: S3Server) -> None:
    ports = free_ports(5)
    prefect, mlflow, scorer, _, metrics = (f"http://127.0.0.1:{port}" for port in ports)
    home, configuration = tmp_path / "home", tmp_path / "floodmark.toml"
    configuration.write_text(CONFIGURATION.format(*ports, tmp_path / "incoming"))
    write_window(tmp_path / "incoming")
    store = f"s3://{s3_server.bucket}/team"
    with ExitStack() as stack:
        databases = stack.enter_context(serving_postgresql())
        variables = {
            **databases.environment,
            **s3_server.environment,
            "MLFLOW_ARTIFACTS_DESTINATION": f"{store}/mlflow",
            "FLOODMARK_STORE": store,
        }
        client = {
            **s3_server.environment,
            "FLOODMARK_STORE": store,
            "FLOODMARK_TRACKING_URI": mlflow,
            "PREFECT_API_URL": f"{prefect}/api",
        }
        stack.enter_context(up(tmp_path, variables))
        assert databases.rows("prefect", "SELECT count(*) FROM deployment") == [(4,)]
        subprocess.run(
            [sys.executable, "-m", "prefect", "deployment", "run", "floodmark-monitor/floodmark"],
            env=environment(client | {"PREFECT_HOME": str(tmp_path / "prefect")}),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        deadline = time.monotonic() + LOOP_PATIENCE
        while not has_champion(home, configuration, client):
            assert time.monotonic() < deadline, (home / "logs" / "training-worker.log").read_text()[-4000:]
            time.sleep(2)

        deadline = time.monotonic() + PATIENCE
        while (ready := httpx.get(f"{scorer}/health/ready")).status_code != 200:
            assert time.monotonic() < deadline, ready.text
            time.sleep(0.2)
        scored = httpx.post(f"{scorer}/score", json={"rows": [{"load": 40.0, "heat": 60.0}]})
        assert scored.status_code == 200, scored.text
        assert 'floodmark_windows_total{model="floodmark",outcome="bootstrap"} 1.0' in (
            httpx.get(f"{metrics}/metrics").text
        )

        assert databases.rows("mlflow", "SELECT name, version FROM model_versions") == [("floodmark", 1)]
        ((runs,),) = databases.rows("prefect", "SELECT count(*) FROM flow_run")
        assert isinstance(runs, int)
        assert runs >= 2
        ((workers,),) = databases.rows("prefect", "SELECT count(*) FROM worker")
        assert workers == 2
        assert not [path for path in home.rglob("*") if path.suffix == ".db"]
        artifacts = boto3.session.Session().client(
            "s3",
            endpoint_url=s3_server.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=s3_server.access_key,
            aws_secret_access_key=s3_server.secret_key,
        )
        listed = artifacts.list_objects_v2(Bucket=s3_server.bucket, Prefix="team/mlflow/")["Contents"]
        assert any(item["Key"].endswith(".onnx") for item in listed)

        arguments = [" ".join(item.info["cmdline"] or []) for item in psutil.process_iter(["cmdline"])]
        for secret in (databases.password, s3_server.secret_key):
            assert not any(secret in words for words in arguments)
            assert not [
                path for path in tmp_path.rglob("*.log") if secret in path.read_text(errors="replace")
            ]
    wait_until_nothing_is_left_of(home)
