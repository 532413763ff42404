"""A training that was killed in the middle of an epoch ends as one that was not, with any number of ranks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def start(folder: Path, stage: str, *launcher: str) -> str:
    single = {f"{name}_NUM_THREADS": "1" for name in ("OMP",)} | {
        f"TF_NUM_{name}_THREADS": "1" for name in ("INTRAOP", "INTEROP")
    }
    environment = os.environ | single | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
    script = str(Path(__file__).with_name("resume_checks.py"))
    command = [*launcher, sys.executable, script, str(folder), stage]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    two = (str(Path(sys.executable).parent / "horovodrun"), "--gloo", "-np", "2", "-H", "localhost:2")
    start(folder, "first")
    start(folder, "first", *two)
    kept = folder / "checkpoints"
    for form in ("memory", "disk"):
        for began in (1, 2):
            assert len(list((kept / f"{form}-{began}").iterdir())) == 2
            for size in (1, 2):
                shutil.copytree(kept / f"{form}-{began}", kept / f"{form}-{began}-for-{size}")
    # One of them lost its newest checkpoint half-way to the disk, and goes on from the one before.
    newest = max((kept / "memory-2-for-2").iterdir())
    newest.write_bytes(newest.read_bytes()[:1000])
    start(folder, "second")
    said = start(folder, "second", *two)
    assert f"{newest} is passed over: " in said
    return folder


@pytest.mark.parametrize("form", ["memory", "disk"])
@pytest.mark.parametrize(("began", "size"), [(1, 2), (2, 2), (2, 1)])
def test_a_resumed_training_equals_an_uninterrupted_one(
    folder: Path, form: str, began: int, size: int
) -> None:
    whole = np.load(folder / f"whole-{form}-0-of-{size}.npz")
    for rank in range(size):
        resumed = np.load(folder / f"resumed-{form}-{began}-{rank}-of-{size}.npz")
        tolerance = 1e-6 if began == size else 1e-4  # sums of two ranks round otherwise, and Adam remembers
        for name in whole.files:
            np.testing.assert_allclose(resumed[name], whole[name], atol=tolerance, rtol=tolerance)
    losses = json.loads((folder / f"second-0-of-{size}.json").read_text())
    expected = json.loads((folder / f"first-0-of-{size}.json").read_text())
    assert losses[f"{form}-{began}"] == pytest.approx(expected[form], rel=1e-4)


@pytest.mark.parametrize("form", ["memory", "disk"])
def test_two_ranks_equal_one_in_many_steps_of_a_global_batch(folder: Path, form: str) -> None:
    one, two = (np.load(folder / f"sgd-{form}-0-of-{size}.npz") for size in (1, 2))
    for name in one.files:
        np.testing.assert_allclose(two[name], one[name], atol=1e-5, rtol=1e-5)
