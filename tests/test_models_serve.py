"""The registered model under MLflow's own scoring server, beside what Floodmark scores."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from artifacts import normal_rows
from champions import champion_home
from flows.installation import Installation
from infra.settings import load_settings

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

STARTUP_S, END_S = 120, 30


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A home whose version 1 is the champion, by the alias too."""
    installation = Installation(
        load_settings(None, {"home": champion_home(tmp_path_factory.mktemp("models-serve"))})
    )
    installation.registry.set_alias("champion", "1")
    return installation


@pytest.fixture(scope="module")
def url(installation: Installation) -> Iterator[str]:
    """`mlflow models serve` of the champion."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    programs = str(Path(sys.executable).parent)  # MLflow looks for uvicorn there
    environment = os.environ | {
        "MLFLOW_TRACKING_URI": installation.registry.tracking_uri,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    served = ["--model-uri", "models:/floodmark@champion", "--env-manager", "local"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    with (installation.settings.home / "models-serve.log").open("w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "models", "serve", *served, *address],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        try:
            wait(f"http://127.0.0.1:{port}/ping", process, Path(log.name))
            yield f"http://127.0.0.1:{port}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 15)
            process.wait(END_S)


def wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + STARTUP_S
    while True:
        try:
            httpx.get(url, timeout=5).raise_for_status()
            break
        except httpx.HTTPError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)


def test_it_answers_as_floodmark_does(url: str, installation: Installation) -> None:
    rows = normal_rows(50, seed=4).drop(columns="at")
    split = json.loads(rows.to_json(orient="split", index=False))
    answer = httpx.post(f"{url}/invocations", json={"dataframe_split": split}, timeout=60)
    answer.raise_for_status()
    predictions = answer.json()["predictions"]
    scorer = installation.registry.scorer("1")
    scores = scorer.score(rows)
    np.testing.assert_allclose([row["anomaly_score"] for row in predictions], scores, rtol=1e-6)
    assert {row["threshold"] for row in predictions} == {scorer.threshold.value}
    expected = (scores > scorer.threshold.value).tolist()
    assert [row["is_anomaly"] for row in predictions] == expected


def test_a_missing_feature_is_named(url: str) -> None:
    answer = httpx.post(f"{url}/invocations", json={"dataframe_records": [{"flow": 1.0}]}, timeout=60)
    assert answer.status_code >= 400
    assert "pressure" in answer.text
