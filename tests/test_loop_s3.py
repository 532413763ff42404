"""The whole loop on a real S3 server, source and ledger both; killed at every step; bad windows between."""

import gzip
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pandas as pd
import pytest

from command import FLOODMARK, environment, floodmark, status
from processes import wait_until_nothing_is_left_of
from s3_server import S3Server

ROWS = 800
STEPS = ("window", "training", "gates", "aliases")
CONFIGURATION = """
time_column = "time"
label_column = "label"

[threshold]
target_alert_rate = 0.05

[retraining]
min_rows = 1000

[detector.options]
epochs = 15
"""


def sensors(day: int, *, shifted: bool = False) -> pd.DataFrame:
    """One day of a small plant: three coupled sensors, a machine's name, 1 % labelled anomalies."""
    generator = np.random.default_rng(day)
    load = generator.gamma(4.0, 10.0, ROWS)
    label = generator.random(ROWS) < 0.01
    frame = pd.DataFrame(
        {
            "time": pd.date_range(f"2026-03-{day:02d}", periods=ROWS, freq="1min", tz="UTC"),
            "load": load,
            "temperature": 40 + 0.5 * load + generator.normal(0, 1, ROWS) + 30 * label,
            "pressure": 3 + 0.02 * load + generator.normal(0, 0.1, ROWS),
            "machine": generator.choice(["mill", "press", "saw"], ROWS, p=[0.5, 0.3, 0.2]),
            "label": label.astype(int),
        }
    )
    if shifted:
        frame["pressure"] = 1.5 * frame["pressure"] + 1
        frame["load"] = frame["load"] * 1.4
    return frame


def parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


def csv(frame: pd.DataFrame, separator: str = ",", encoding: str = "utf-8") -> bytes:
    return frame.to_csv(index=False, sep=separator).encode(encoding)


def objects() -> dict[str, bytes]:
    """Good windows in every format, days 1-5 alike and 6-8 shifted; bad ones sorted in between."""
    good = sensors(4)
    retyped = good.assign(load=good["load"].map("{:.1f} kN".format))
    return {
        "2026-03-01.parquet": parquet(sensors(1)),
        "2026-03-02.csv": csv(sensors(2)),
        "2026-03-03.csv.gz": gzip.compress(csv(sensors(3), ";", "utf-8-sig")),
        "2026-03-04-a-truncated.parquet": parquet(good)[:-200],
        "2026-03-04-b-truncated.csv.gz": gzip.compress(csv(good))[:-200],
        "2026-03-04-c-empty.csv": b"",
        "2026-03-04-d-no-rows.parquet": parquet(good.head(0)),
        "2026-03-04-e-missing.parquet": parquet(good.drop(columns="pressure")),
        "2026-03-04-f-retyped.csv": csv(retyped),
        "2026-03-04-g-all-missing.parquet": parquet(good.assign(pressure=np.nan)),
        "2026-03-04-h-infinite.parquet": parquet(good.assign(load=np.inf)),
        "2026-03-04-i-no-time.parquet": parquet(good.drop(columns="time")),
        "2026-03-04-j-twice.parquet": parquet(pd.concat([good, good])),
        "2026-03-04-k-copy.parquet": parquet(sensors(1)),
        "2026-03-04.parquet": parquet(good[good.columns[::-1]].assign(comment="reordered, and one more")),
        "dt=2026-03-05/part-0.parquet": parquet(sensors(5).head(ROWS // 2).drop(columns="label")),
        "dt=2026-03-05/part-1.parquet": parquet(sensors(5).tail(ROWS // 2).drop(columns="label")),
        "dt=2026-03-06/part-0.csv": csv(sensors(6, shifted=True), "\t"),
        "dt=2026-03-07/part-0.parquet": parquet(sensors(7, shifted=True)),
        "dt=2026-03-08/part-0.parquet": parquet(sensors(8, shifted=True)),
        "_SUCCESS": b"",
    }


QUARANTINED = {
    "2026-03-04-a-truncated": "parquet",
    "2026-03-04-b-truncated": "gzip",
    "2026-03-04-c-empty": "empty",
    "2026-03-04-d-no-rows": "no rows",
    "2026-03-04-e-missing": "pressure",
    "2026-03-04-f-retyped": "kN",
    "2026-03-04-g-all-missing": "pressure",
    "2026-03-04-h-infinite": "infinite",
    "2026-03-04-i-no-time": "time",
    "2026-03-04-j-twice": "repeat",
    "2026-03-04-k-copy": "2026-03-01",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where a run works, and the bucket that holds its source and its ledger."""

    home: Path
    config: Path
    env: Mapping[str, str]
    source: str
    client: Any
    bucket: str

    @property
    def arguments(self) -> list[str | Path]:
        return ["--home", self.home, "--config", self.config]

    def newest_claim(self) -> str:
        """The step that the newest entry of the ledger claims, if it is a claim."""
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix="store/state/").get("Contents", [])
        if not listed:
            return ""
        body = self.client.get_object(Bucket=self.bucket, Key=listed[-1]["Key"])["Body"].read()
        record = json.loads(body)["record"]
        return str(record["step"]) if record["kind"] == "claim" else ""


@pytest.fixture(scope="module")
def installation(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("s3")
    (folder / "floodmark.toml").write_text(CONFIGURATION)
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
    )
    for key, body in objects().items():
        client.put_object(Bucket=s3_server.bucket, Key=f"incoming/{key}", Body=body)
    return Installation(
        home=folder / "home",
        config=folder / "floodmark.toml",
        env=s3_server.environment | {"FLOODMARK_STORE": f"s3://{s3_server.bucket}/store"},
        source=f"s3://{s3_server.bucket}/incoming",
        client=client,
        bucket=s3_server.bucket,
    )


def run_until_killed(installation: Installation, step: str) -> None:
    """Run, and kill the process as soon as it has claimed a step of one kind."""
    with (installation.home.parent / f"killed-at-{step}.log").open("wb") as log:
        process = subprocess.Popen(
            [FLOODMARK, "run", installation.source, *installation.arguments],
            env=environment(installation.env),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + 240
    while not installation.newest_claim().startswith(step):
        assert process.poll() is None, f"it ended before a step {step}: {Path(log.name).read_text()}"
        assert time.monotonic() < deadline, f"no step {step}"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def state(installation: Installation) -> dict[str, Any]:
    """The status after a run that was killed once at every kind of step."""
    for step in STEPS:
        run_until_killed(installation, step)
    done = floodmark(
        "run",
        installation.source,
        *installation.arguments,
        cwd=installation.home.parent,
        env=installation.env,
    )
    assert done.returncode == 0, done.stderr
    return status(installation.home, installation.env)


def test_every_window_is_accounted_for_once_in_spite_of_the_kills(state: dict[str, Any]) -> None:
    outcomes = {window["id"]: window["outcome"] for window in state["windows"]}
    good = {
        **dict.fromkeys(["2026-03-01", "2026-03-02", "2026-03-03"], "bootstrap"),
        **dict.fromkeys(["2026-03-04", *(f"dt=2026-03-0{day}" for day in (5, 6, 7, 8))], "scored"),
    }
    assert outcomes == good | dict.fromkeys(QUARANTINED, "quarantined")
    assert len(state["windows"]) == len(outcomes)


@pytest.mark.parametrize(("window", "reason"), QUARANTINED.items())
def test_a_bad_window_is_quarantined_with_its_reason(state: dict[str, Any], window: str, reason: str) -> None:
    (found,) = [item for item in state["windows"] if item["id"] == window]
    assert reason.lower() in found["reason"].lower()


def test_kills_make_no_second_version_and_no_second_promotion(
    state: dict[str, Any], installation: Installation
) -> None:
    assert [training["outcome"] for training in state["trainings"]] == ["registered"] * len(
        state["trainings"]
    )
    versions = [training["version"] for training in state["trainings"]]
    assert versions == [str(number + 1) for number in range(len(versions))]
    assert [promotion["version"] for promotion in state["promotions"]] == versions
    assert state["champion"]["version"] == versions[-1]
    assert len(versions) == 2, state["trainings"]
    assert installation.newest_claim() == ""


def test_the_shift_is_found_and_learned(state: dict[str, Any]) -> None:
    verdicts = {window["id"]: window["drift"]["status"] for window in state["windows"] if window["drift"]}
    assert verdicts["2026-03-04"] == verdicts["dt=2026-03-05"] == "STABLE"
    assert verdicts["dt=2026-03-06"] == verdicts["dt=2026-03-07"] == "DRIFTED"
    assert verdicts["dt=2026-03-08"] == "STABLE"


def test_extra_and_missing_label_columns_are_warnings(state: dict[str, Any]) -> None:
    reasons = {window["id"]: window["reason"] for window in state["windows"]}
    assert "comment" in reasons["2026-03-04"]
    assert "label" in reasons["dt=2026-03-05"]


def test_scores_are_stored_beside_the_ledger(state: dict[str, Any], installation: Installation) -> None:
    (window,) = [item for item in state["windows"] if item["id"] == "dt=2026-03-08"]
    key = "store/scores/floodmark/dt=2026-03-08.parquet"
    body = installation.client.get_object(Bucket=installation.bucket, Key=key)["Body"].read()
    scores = pd.read_parquet(io.BytesIO(body))
    own = ["anomaly_score", "threshold", "is_anomaly", "model_version"]
    assert list(scores.columns) == ["time", "label", *own]
    assert scores["is_anomaly"].sum() == window["alerts"]
    assert set(scores["model_version"]) == {window["champion_version"]}


def test_a_repaired_window_is_taken_again(state: dict[str, Any], installation: Installation) -> None:
    del state
    key = "incoming/2026-03-04-c-empty.csv"
    installation.client.put_object(Bucket=installation.bucket, Key=key, Body=csv(sensors(9, shifted=True)))
    done = floodmark(
        "run",
        installation.source,
        *installation.arguments,
        cwd=installation.home.parent,
        env=installation.env,
    )
    assert done.returncode == 0, done.stderr
    (window,) = [
        item
        for item in status(installation.home, installation.env)["windows"]
        if item["id"] == "2026-03-04-c-empty"
    ]
    assert window["outcome"] == "scored"


def test_no_process_is_left_and_no_secret_is_on_disk(
    installation: Installation, state: dict[str, Any]
) -> None:
    del state
    wait_until_nothing_is_left_of(installation.home)
    secret = installation.env["AWS_SECRET_ACCESS_KEY"].encode()
    holding = [
        path for path in installation.home.parent.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]
    assert holding == []
