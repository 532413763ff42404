"""What holds for every detector of the table, whatever it is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from training.detectors import BASELINES, DETECTORS, DirectDetector, check_options, detector
from training.errors import ConfigurationError
from training.types import DetectorSpec

ROOT = Path(__file__).resolve().parents[1]
ALL = pytest.mark.parametrize("name", DETECTORS)
DRAWS_NOTHING = {"pca"}
WRONG_OPTIONS: dict[str, dict[str, float | int | str]] = {
    "pca": {"variance": 1.5},
    "isolation_forest": {"trees": 0},
}
"""Of detectors that are fitted directly; all others have epochs."""


def start(folder: Path, *launcher: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    script = Path(__file__).with_name("detector_checks.py")
    command = [*launcher, sys.executable, str(script), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


Observed = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    folder = tmp_path_factory.mktemp("alone")
    start(folder)
    observed: Observed = json.loads((folder / "rank-0-of-1.json").read_text())
    return observed


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Observed]:
    folder = tmp_path_factory.mktemp("ranks")
    start(folder, str(Path(sys.executable).parent / "horovodrun"), "--gloo", "-np", "2", "-H", "localhost:2")
    return [json.loads((folder / f"rank-{rank}-of-2.json").read_text()) for rank in range(2)]


@ALL
def test_scores_are_finite_and_outliers_score_above_normal_rows(alone: Observed, name: str) -> None:
    normal, outliers = alone[name]["normal"], alone[name]["outliers"]
    assert np.isfinite([*normal, *outliers, alone[name]["loss"]]).all()
    assert roc_auc_score([0] * len(normal) + [1] * len(outliers), normal + outliers) > 0.9


@ALL
def test_the_exported_network_scores_as_the_trained_one(alone: Observed, name: str) -> None:
    trained = alone[name]["normal"] + alone[name]["outliers"]
    np.testing.assert_allclose(alone[name]["exported"], trained, rtol=1e-4, atol=1e-6)


@ALL
def test_the_seed_alone_decides(alone: Observed, name: str) -> None:
    assert alone[name]["repeated"] == alone[name]["normal"]
    assert (alone[name]["other_seed"] == alone[name]["normal"]) == (name in DRAWS_NOTHING)


@ALL
def test_two_ranks_come_to_one_model_of_all_rows(ranks: list[Observed], alone: Observed, name: str) -> None:
    first, second = (rank[name] for rank in ranks)
    assert first == second
    assert first["rows"] == alone[name]["rows"]
    if isinstance(detector(DetectorSpec(name=name)), DirectDetector):  # the others see other noise
        np.testing.assert_allclose(first["normal"], alone[name]["normal"], rtol=1e-4)


@ALL
def test_wrong_options_are_errors_that_name_the_choices(name: str) -> None:
    check_options(DetectorSpec(name=name))
    wrong = WRONG_OPTIONS.get(name, {"epochs": 0})
    unknown: dict[str, float | int | str] = {"depth": 3}
    for options in (wrong, unknown):
        with pytest.raises(ConfigurationError, match=f"wrong options of the detector '{name}'") as error:
            check_options(DetectorSpec(name=name, options=options))
        assert next(iter(wrong)) in error.value.hint


def test_known_anomalies_take_part_on_every_rank_alike(ranks: list[Observed], alone: Observed) -> None:
    first, second, single = (observed["supervised"] for observed in (*ranks, alone))
    assert abs(first["taken"] - second["taken"]) <= 1
    assert first["taken"] + second["taken"] == single["taken"]
    assert single["taken"] == round(single["training_rows"] * 0.2 / 0.8)
    assert first["normal"] == second["normal"]
    np.testing.assert_allclose(first["normal"], single["normal"], rtol=1e-4)
    np.testing.assert_allclose(first["outliers"], single["outliers"], rtol=1e-4)


def test_the_weight_makes_anomalies_score_higher_beside_normal_rows(alone: Observed) -> None:
    supervised, taken_for_normal = alone["supervised"], alone["taken_for_normal"]
    ratios = [np.mean(one["outliers"]) / np.mean(one["normal"]) for one in (supervised, taken_for_normal)]
    assert ratios[0] > 1.05 * ratios[1]


def test_baselines_are_detectors() -> None:
    assert set(DETECTORS) > BASELINES
