"""A training that ended with all around it goes on from its checkpoint: through the pool, and the flow."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from prefect import flow

from flows import training_events
from flows.installation import open_installation
from flows.retrain import PreparedRows, train
from infra.pool import POOLS
from infra.settings import Settings
from prefect_api import prefect_api
from processes import descendants, is_rank
from s3_server import S3Server
from training import artifact
from training.parts import (
    CALIBRATION_ANOMALIES,
    CALIBRATION_ROWS,
    HELD_OUT_ROWS,
    REFERENCE_ROWS,
    TRAINING_ANOMALIES,
    TRAINING_ROWS,
)
from training.storage import Place
from training.types import Column, DetectorSpec, FeatureSchema, TrainingJob, TrainingRequest, TrainingResult

ROOT = Path(__file__).resolve().parents[1]
EPOCHS, EPOCHS_ON_S3 = 60, 12
PARTS = (TRAINING_ROWS, CALIBRATION_ROWS, REFERENCE_ROWS, HELD_OUT_ROWS)
PROGRAM = """if True:
    import json
    import sys
    from pathlib import Path
    from pydantic import TypeAdapter
    from infra.pool import POOLS
    from training.types import TrainingJob
    folder = Path(sys.argv[1])
    job = TypeAdapter(TrainingJob).validate_json((folder / "job.json").read_bytes())
    tell = lambda event: print(json.dumps(event), flush=True)
    POOLS["local"](job, folder / "work", timeout=200, report=tell)"""


def request_of(ranks: int, epochs: int) -> TrainingRequest:
    return TrainingRequest(
        model="pump",
        windows=(),
        schema=FeatureSchema(features=tuple(Column(name=name, kind="numeric") for name in "abc")),
        detector=DetectorSpec(options={"epochs": epochs, "patience": epochs}),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=ranks,
        seed=0,
        champion_version=None,
    )


def put_rows(place: Place, scratch: Path) -> None:
    path = scratch / "rows.parquet"
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(2_000, 3)), columns=list("abc"))
    rows.to_parquet(path, index=False)
    place.write(path.read_bytes())


def epochs_of(events: list[dict[str, Any]]) -> list[int]:
    return [event["figures"]["epoch"] for event in events if event["event"] == "progress"]


def newest_epoch(checkpoints: Place) -> int:
    """Return the epoch that a training goes on with, by the name of its newest checkpoint."""
    names = [place.name for place in checkpoints.files() if place.name.endswith(".checkpoint")]
    return int(names[-1].partition("-")[0])


@pytest.fixture
def owner(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, whose credentials are in the environment."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def home(owner: S3Server, tmp_path: Path) -> Place:
    """A folder on S3 with the rows of a training."""
    home = Place.at(f"s3://{owner.bucket}/{tmp_path.name}")
    for name in PARTS:
        put_rows(home.child("rows").child(name), tmp_path)
    return home


@pytest.fixture
def job(home: Place, tmp_path: Path) -> TrainingJob:
    rows = home.child("rows")
    return TrainingJob(
        request=request_of(2, EPOCHS_ON_S3),
        training_rows=rows.child(TRAINING_ROWS).url,
        calibration_rows=rows.child(CALIBRATION_ROWS).url,
        reference_rows=rows.child(REFERENCE_ROWS).url,
        held_out_rows=rows.child(HELD_OUT_ROWS).url,
        output=str(tmp_path / "output"),
        checkpoints=home.child("checkpoints").url,
    )


@pytest.fixture
def control_plane(job: TrainingJob, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process of its own that trains the job and prints its events."""
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_training_on_s3_that_is_killed_as_a_whole_goes_on_from_its_checkpoint(
    control_plane: "subprocess.Popen[str]", job: TrainingJob, home: Place, owner: S3Server, tmp_path: Path
) -> None:
    assert control_plane.stdout is not None
    before = []
    for line in control_plane.stdout:
        before.append(json.loads(line))
        if epochs_of(before)[-1:] == [3]:
            break
    everyone = [psutil.Process(control_plane.pid), *descendants(control_plane.pid)]
    ranks = list(filter(is_rank, everyone))
    for item in everyone[1:]:
        assert owner.secret_key not in " ".join(item.cmdline())
        assert (owner.secret_key in item.environ().values()) == (item in ranks)
    assert len(ranks) == 2
    for item in everyone:
        item.suspend()  # so that none ends the others in good order
    for item in everyone:
        with suppress(psutil.NoSuchProcess):
            item.kill()
    control_plane.wait()
    before += [json.loads(line) for line in control_plane.stdout if line.endswith("}\n")]
    kept = newest_epoch(home.child("checkpoints"))
    assert not (tmp_path / "output" / "result.json").exists()

    after: list[dict[str, Any]] = []
    result = POOLS["local"](job, tmp_path / "work", timeout=200, report=after.append)
    assert (result.epochs, result.world_size) == (EPOCHS_ON_S3, 2)
    done = epochs_of(before)
    assert done == list(range(1, len(done) + 1))
    assert done[-1] < kept  # lines on their way were lost with the processes
    assert epochs_of(after) == list(range(kept, EPOCHS_ON_S3 + 1))
    lineage = json.loads((Path(result.artifact) / artifact.LINEAGE).read_text())
    assert len(lineage["figures_of_epochs"]) == EPOCHS_ON_S3
    assert home.child("checkpoints").files() == []
    holding = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and owner.secret_key.encode() in path.read_bytes()
    ]
    assert holding == []


def test_the_second_attempt_of_the_flow_goes_on_from_the_checkpoint_of_the_first(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"home": tmp_path / "home", "training": {"checkpoints": str(tmp_path / "kept")}}
    )
    installation, request = open_installation(settings), request_of(1, EPOCHS)
    prepared = PreparedRows(
        folder=installation.training_folder(request.id), guard="", rows_per_day=None, max_gap_seconds=None
    )
    for name in (*PARTS, CALIBRATION_ANOMALIES, TRAINING_ANOMALIES):
        put_rows(Place.at(prepared.folder / name), tmp_path)
    events: list[dict[str, Any]] = []

    kept = []

    def kill_once(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "started" and epochs_of(events):
            kept.append(newest_epoch(Place.at(tmp_path / "kept")))
        if epochs_of(events) == [1, 2, 3, 4, 5]:
            for item in filter(is_rank, descendants()):
                item.kill()

    @flow
    def attempt() -> TrainingResult:
        return train.with_options(retry_delay_seconds=0)(installation, request, prepared)

    with pytest.MonkeyPatch.context() as patch, prefect_api(tmp_path / "prefect"):
        patch.setattr(training_events, "_listeners", [kill_once])
        result = attempt()
    assert result.epochs == EPOCHS
    (resumed,) = kept
    done = len(epochs_of(events)) - (EPOCHS - resumed + 1)
    assert 5 <= done < resumed
    assert epochs_of(events) == [*range(1, done + 1), *range(resumed, EPOCHS + 1)]
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
