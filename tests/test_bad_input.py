"""Bad rows and full disks, through the real job: a clear error of the right kind, nothing half-written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from training import artifact
from training.sequences import STRETCH
from training.types import Column, DetectorSpec, FeatureSchema, TrainingJob, TrainingRequest

ROOT = Path(__file__).resolve().parents[1]
ROWS = 3_000
Change = Callable[[pd.DataFrame], pd.DataFrame]

REFUSED: dict[str, tuple[Change, str]] = {
    "no-rows": (lambda rows: rows.head(0), "0 training rows are fewer than the 1 ranks"),
    "one-row": (lambda rows: rows.head(1), "every feature is the same in all training rows"),
    "nothing-varies": (
        lambda rows: rows.assign(a=7.0, b=np.nan, word="x"),
        "every feature is the same in all training rows",
    ),
    "nothing-varies-in-sequences": (
        lambda rows: rows.assign(a=7.0, b=np.nan, word="x", **{STRETCH: 0}),
        "every feature is the same in all training rows",
    ),
    "a-column-is-missing": (lambda rows: rows.drop(columns="b"), "columns are missing: 'b'"),
    "text-among-numbers-streamed": (
        lambda rows: rows.assign(b=pd.Series([*[None] * (ROWS - 1), "twelve"], dtype=object)),
        "the numeric column 'b' holds 'twelve'",
    ),
}
TAKEN: dict[str, Change] = {
    "one-column-all-missing": lambda rows: rows.assign(b=np.nan),
    "every-row-a-category": lambda rows: rows.assign(word=[f"id-{row}" for row in range(len(rows))]),
    "not-finite-beyond-the-sample-streamed": lambda rows: rows.assign(
        a=rows["a"].where(rows.index < ROWS - 2, np.nan), b=rows["b"].where(rows.index != ROWS - 3, np.inf)
    ),
    "every-row-a-category-streamed": lambda rows: rows.assign(word=[f"id-{row}" for row in rows.index]),
}
DAMAGED = {"no-end": slice(None, -200), "no-middle": slice(None, None)}
FULL = {"at-the-checkpoint": "autoencoder", "at-the-artifact": "pca"}
LARGEST = 100_000
"""Bytes of a file: fewer than such a checkpoint has, more than TensorFlow's own temporary files."""


def put_job(folder: Path, training: pd.DataFrame, detector: str = "autoencoder") -> None:
    folder.mkdir()
    generator = np.random.default_rng(1)
    normal = pd.DataFrame(
        {"a": generator.normal(size=400), "b": generator.normal(size=400), "word": ["x", "y"] * 200}
    )
    normal.to_parquet(folder / "normal.parquet", index=False)
    training.to_parquet(folder / "training.parquet", index=False)
    request = TrainingRequest(
        model="pump",
        windows=(),
        schema=FeatureSchema(
            features=(
                Column(name="a", kind="numeric"),
                Column(name="b", kind="numeric"),
                Column(name="word", kind="categorical"),
            )
        ),
        detector=DetectorSpec(name=detector, options={"epochs": 2} if detector == "autoencoder" else {}),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=1,
        seed=0,
        champion_version=None,
    )
    job = TrainingJob(
        request=request,
        training_rows=str(folder / "training.parquet"),
        calibration_rows=str(folder / "normal.parquet"),
        reference_rows=str(folder / "normal.parquet"),
        held_out_rows=str(folder / "normal.parquet"),
        output=str(folder / "output"),
        max_gap_seconds=60.0 if "sequences" in folder.name else None,
        megabytes_per_rank=0.0 if folder.name.endswith("streamed") else None,
    )
    (folder / "output").mkdir()
    (folder / "job.json").write_text(json.dumps(asdict(job)))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({"a": generator.normal(size=ROWS), "b": generator.normal(size=ROWS), "word": "x"})
    for name, (change, _) in REFUSED.items():
        put_job(folder / name, change(rows), "lstm_autoencoder" if "sequences" in name else "autoencoder")
    for name, change in TAKEN.items():
        put_job(folder / name, change(rows))
    for name, kept in DAMAGED.items():
        put_job(folder / name, rows)
        path = folder / name / "training.parquet"
        content = bytearray(path.read_bytes()[kept])
        if name == "no-middle":
            content[4:400] = bytes(396)
        path.write_bytes(content)
    for name, detector in (FULL | {"no-room-for-an-error": "autoencoder"}).items():
        put_job(folder / name, rows.assign(word=[f"id-{row}" for row in rows.index]), detector)
        many = pd.DataFrame(
            {"a": generator.normal(size=20_000), "b": generator.normal(size=20_000), "word": "x"}
        )
        many.to_parquet(folder / name / "normal.parquet", index=False)
        (folder / name / "largest").write_text(str(LARGEST))
    (folder / "no-room-for-an-error" / "output" / "error-rank-0.json").mkdir()
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("job_checks.py")), str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def outcome(folder: Path) -> tuple[int, dict[str, Any]]:
    """Return a failed job's exit code and error, once nothing else is found of it."""
    output = folder / "output"
    left = {path.name for path in output.rglob("*") if path.is_file()}
    assert left <= {"error-rank-0.json", "form.json"}
    assert not list(output.glob("scratch-*"))
    error: dict[str, Any] = json.loads((output / "error-rank-0.json").read_text())
    return int((folder / "code").read_text()), error


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_nothing_can_be_learned_from_are_refused_for_good(jobs: Path, name: str) -> None:
    code, error = outcome(jobs / name)
    assert (code, error["retryable"]) == (70, False)
    assert error["type"] in {"TrainingFailedError", "InvalidWindowError"}
    assert error["message"].startswith(REFUSED[name][1])
    assert "\n  " in error["message"]  # what to do


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named_and_refused_for_good(jobs: Path, name: str) -> None:
    code, error = outcome(jobs / name)
    assert (code, error["retryable"], error["type"]) == (70, False, "InvalidWindowError")
    assert error["message"].startswith(f"{jobs / name}/training.parquet is no readable Parquet file: ")


@pytest.mark.parametrize("name", FULL)
def test_a_full_disk_is_named_and_may_have_room_later(jobs: Path, name: str) -> None:
    code, error = outcome(jobs / name)
    assert (code, error["retryable"], error["type"]) == (75, True, "RetryableError")
    assert error["message"].startswith(f"{jobs / name}/output/")
    assert "cannot be written" in error["message"]
    reason = "File too large" if name == "at-the-checkpoint" else "20000 requested and "
    assert f"MiB are needed: {reason}" in error["message"]
    assert "\n  Nothing of it is left. Make room there" in error["message"]


def test_without_room_for_the_error_the_exit_code_still_tells(jobs: Path) -> None:
    output = jobs / "no-room-for-an-error" / "output"
    assert (output.parent / "code").read_text() == "75"
    assert [path.name for path in output.rglob("*") if path.is_file()] == ["form.json"]


@pytest.mark.parametrize("name", TAKEN)
def test_columns_of_little_use_harm_nothing(jobs: Path, name: str) -> None:
    output = jobs / name / "output"
    assert (jobs / name / "code").read_text() == "0", (output / "error-rank-0.json").read_text()
    artifact.verify(output / "artifact")
    assert np.isfinite(json.loads((output / "result.json").read_text())["loss"])
    fitted = json.loads((output / "artifact" / "preprocessing.json").read_text())
    (word,) = fitted["categorical"]
    assert len(word["levels"]) <= 64
    assert {path.name for path in output.iterdir()} == {"artifact", "result.json", "checkpoints"}
