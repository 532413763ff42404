"""Two ranks on this machine do what one would: the same rows, steps, weights and threshold."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from infra.pool import POOLS
from training import artifact
from training.calibrators import CalibrationScores, ThresholdSpec
from training.dataset import read_sample, read_shard
from training.errors import InvalidWindowError
from training.scorer import Scorer
from training.threshold import calibrate
from training.types import Column, DetectorSpec, FeatureSchema, TrainingJob, TrainingRequest, TrainingResult

ROOT = Path(__file__).resolve().parents[1]
ROWS = 501
"""Odd, so that the shards of two ranks differ."""


def make_rows(rows: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    base = generator.standard_normal((rows, 2))
    frame = pd.DataFrame(base @ generator.standard_normal((2, 4)), columns=list("abcd"))
    frame.loc[::9, "b"] = np.nan
    frame["d"] = np.exp(5 * frame["d"])
    return frame.assign(word=generator.choice(["tcp", "udp", "icmp"], rows), row=np.arange(rows))


def make_anomalies(rows: int) -> pd.DataFrame:
    """Return rows whose columns do not go together; the last ones, less so, are hard to tell."""
    frame, strength = make_rows(rows, 4), np.linspace(8, 0, rows)
    return frame.assign(a=frame["a"] + strength, c=frame["c"] - strength)


def start(folder: Path, *launcher: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    script = Path(__file__).with_name("two_rank_checks.py")
    command = [*launcher, sys.executable, str(script), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    make_rows(ROWS, 1).to_parquet(folder / "rows.parquet", index=False, row_group_size=100)
    start(folder, str(Path(sys.executable).parent / "horovodrun"), "--gloo", "-np", "2", "-H", "localhost:2")
    start(folder)
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank-{rank}-of-2.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    observed: dict[str, Any] = json.loads((folder / "rank-0-of-1.json").read_text())
    return observed


def test_every_row_belongs_to_exactly_one_rank(ranks: list[dict[str, Any]]) -> None:
    assert [rank["rows"] for rank in ranks] == [list(range(0, ROWS, 2)), list(range(1, ROWS, 2))]


def test_every_row_is_seen_once_an_epoch_and_by_its_own_rank(
    ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for observed in (*ranks, alone):
        assert Counter(observed["seen"]) == {float(row): 2 for row in observed["rows"]}  # in two epochs


def test_statistics_are_those_of_one_process(ranks: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    assert [rank["preprocessing"] for rank in ranks] == [alone["preprocessing"]] * 2


def test_two_ranks_come_to_the_weights_and_scores_of_one(folder: Path) -> None:
    first, second, single = (np.load(folder / f"rank-{name}.npz") for name in ("0-of-2", "1-of-2", "0-of-1"))
    assert len(single.files) == 11  # four layers of two, and three scores
    for name in single.files:
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], single[name], atol=1e-5, rtol=1e-5)


def test_the_loss_is_the_mean_over_the_rows_of_all_ranks(
    ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    assert ranks[0]["loss"] == ranks[1]["loss"] == pytest.approx(alone["loss"], rel=1e-5)


def test_steps_in_which_a_rank_has_no_row_neither_hang_nor_spoil(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["loss_of_single_rows"] == ranks[1]["loss_of_single_rows"] < 100


def test_ranks_that_exchange_rarely_learn_nearly_the_same(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["loss_of_local_steps"] == ranks[1]["loss_of_local_steps"]
    assert ranks[0]["loss_of_local_steps"] == pytest.approx(ranks[0]["loss_of_steps"], rel=0.1)


def test_ranks_that_exchange_float16_learn_nearly_the_same(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["losses_of_float16"] == ranks[1]["losses_of_float16"]
    assert ranks[0]["losses_of_float16"] == pytest.approx([ranks[0]["loss"]] * 2, rel=1e-3)
    assert ranks[0]["loss"] not in ranks[0]["losses_of_float16"]


def test_clipping_before_averaging_is_another_than_after_it(
    ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    assert alone["loss_of_clipped_ranks"] == pytest.approx(alone["loss_of_clipped"], rel=1e-6)
    assert ranks[0]["loss_of_clipped"] == pytest.approx(alone["loss_of_clipped"], rel=1e-5)
    assert ranks[0]["loss_of_clipped_ranks"] != pytest.approx(alone["loss_of_clipped"], rel=1e-6)
    assert alone["loss_of_clipped"] > alone["loss"]


def test_mixed_precision_learns_nearly_the_same(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["loss_of_bfloat16"] == ranks[1]["loss_of_bfloat16"]
    assert ranks[0]["loss_of_bfloat16"] == pytest.approx(ranks[0]["loss_of_steps"], rel=0.02)
    assert ranks[0]["loss_of_bfloat16"] != ranks[0]["loss_of_steps"]


def test_arrays_of_unequal_length_are_gathered_in_the_order_of_ranks(ranks: list[dict[str, Any]]) -> None:
    assert [rank["gathered"] for rank in ranks] == [[0, 0, 1]] * 2


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("not_finite", "rank 1: a feature is not finite"),
        ("diverged", "a loss of step 2 of epoch 1 is not finite on rank 0, 1"),
        ("no_gradient", "the detector's losses do not depend on its weight idle"),
        ("weights_differ", "on purpose, the weights of ranks [1] differ from those of rank 0"),
        ("never_synchronised", "after the first step, the weights of ranks [1] differ from those of rank 0"),
    ],
)
def test_what_is_wrong_on_one_rank_stops_both_with_the_reason(
    ranks: list[dict[str, Any]], check: str, message: str
) -> None:
    assert [rank[check] for rank in ranks] == [message] * 2


def test_a_horovod_compiled_for_another_tensorflow_is_refused(alone: dict[str, Any]) -> None:
    assert "compiled for another TensorFlow than the installed 2.0.0" in alone["other_tensorflow"]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    folder = tmp_path_factory.mktemp("job")
    make_rows(ROWS, 1).to_parquet(folder / "training.parquet", index=False)
    make_rows(201, 2).to_parquet(folder / "calibration.parquet", index=False)
    make_anomalies(41).to_parquet(folder / "anomalies.parquet", index=False)
    features = (
        *(Column(name=name, kind="numeric") for name in "abcd"),
        Column(name="word", kind="categorical"),
    )
    request = TrainingRequest(
        model="pump",
        windows=(),
        schema=FeatureSchema(features=features, ignored=("row",)),
        detector=DetectorSpec(options={"epochs": 3}),
        target_alert_rate=0.05,
        threshold_method="f_beta",
        threshold_beta=0.5,
        world_size=2,
        seed=3,
        champion_version=None,
    )
    return TrainingJob(
        request=request,
        training_rows=str(folder / "training.parquet"),
        calibration_rows=str(folder / "calibration.parquet"),
        reference_rows=str(folder / "training.parquet"),
        held_out_rows=str(folder / "training.parquet"),
        output=str(folder / "output"),
        calibration_anomalies=str(folder / "anomalies.parquet"),
    )


@pytest.fixture(scope="module")
def result(job: TrainingJob) -> TrainingResult:
    return POOLS["local"](job, Path(job.output).with_name("work"), timeout=300)


def test_the_result_tells_what_was_trained(job: TrainingJob, result: TrainingResult) -> None:
    assert (result.request_id, result.world_size, result.rows, result.epochs) == (job.request.id, 2, ROWS, 3)
    lineage = json.loads((Path(result.artifact) / artifact.LINEAGE).read_text())
    assert lineage["request_id"] == job.request.id
    assert lineage["versions"]["horovod"] == "0.28.1"
    assert 0 <= lineage["onnx_parity"] < 1e-4
    epochs = artifact.read_epochs(Path(result.artifact))
    assert min(epoch.validation_loss for epoch in epochs) == result.loss
    assert len(epochs) == result.epochs
    assert len(lineage["code_sha256"]) == 64


def test_a_finished_training_is_not_repeated(job: TrainingJob, result: TrainingResult) -> None:
    assert POOLS["local"](job, Path(job.output).with_name("again"), timeout=0.01) == result
    assert not Path(job.output).with_name("again").exists()


def test_the_threshold_is_that_of_one_process_over_all_calibration_rows(
    job: TrainingJob, result: TrainingResult
) -> None:
    folder = Path(result.artifact)
    scorer = Scorer.load(folder)
    scores = scorer.score(pd.read_parquet(job.calibration_rows))
    np.testing.assert_allclose(
        np.load(folder / artifact.CALIBRATION_SCORES), scores, rtol=1e-5
    )  # and in order
    anomalous = scorer.score(pd.read_parquet(str(job.calibration_anomalies)))
    spec = ThresholdSpec(method="f_beta", target_alert_rate=0.05, beta=0.5)
    expected = calibrate(spec, CalibrationScores(normal=scores, anomalous=anomalous))
    assert expected.target_alert_rate != 0.05
    assert result.threshold.value == pytest.approx(expected.value, rel=1e-5)
    assert replace(result.threshold, value=expected.value) == expected
    assert scorer.threshold == result.threshold


def test_the_reference_is_a_sample_of_what_the_job_names(job: TrainingJob, result: TrainingResult) -> None:
    for name, rows in ((artifact.REFERENCE, job.reference_rows), (artifact.HELD_OUT, job.held_out_rows)):
        stored = pd.read_parquet(Path(result.artifact) / name)
        pd.testing.assert_frame_equal(stored, pd.read_parquet(rows))  # all, there are so few


def test_the_artifact_scores_where_neither_tensorflow_nor_horovod_is(result: TrainingResult) -> None:
    program = """if True:
        import sys
        sys.modules["tensorflow"] = sys.modules["keras"] = sys.modules["horovod"] = None
        import numpy, pandas
        from pathlib import Path
        from training import artifact
        from training.scorer import Scorer
        folder = Path(sys.argv[1])
        scores = Scorer.load(folder).score(pandas.read_parquet(folder / artifact.CHECK_ROWS))
        numpy.testing.assert_allclose(scores, numpy.load(folder / artifact.CHECK_SCORES), rtol=1e-5)
        print(len(scores))"""
    command = [sys.executable, "-c", program, result.artifact]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "201\n", done.stderr


def test_options_are_checked_where_tensorflow_is_not() -> None:
    program = """if True:
        import sys
        sys.modules["tensorflow"] = sys.modules["keras"] = sys.modules["horovod"] = None
        from training.detectors import DETECTORS, check_options
        from training.errors import ConfigurationError
        from training.types import DetectorSpec
        for name in DETECTORS:
            check_options(DetectorSpec(name=name))
            for options in ({"epochs": 0}, {"epochs": 2.5}, {"optimizer": "momentum"}, {"depth": 3}):
                try:
                    check_options(DetectorSpec(name=name, options=options))
                except ConfigurationError as error:
                    print(error)
        try:
            check_options(DetectorSpec(name="oracle"))
        except ConfigurationError as error:
            print(error)"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    for part in (
        "epochs = 0: Input should be greater than or equal to 1",
        "epochs = 2.5: Input should be a valid integer",
        "optimizer = 'momentum': Input should be 'adam' or 'sgd'",
        "depth = 3: Unexpected keyword argument",
        "Its options are optimizer, learning_rate,",
        "unknown detector 'oracle'\n  Allowed: autoencoder",
    ):
        assert part in done.stdout, done.stdout + done.stderr


def test_real_attacks_are_told_from_normal_traffic(shared_data: Path, tmp_path: Path) -> None:
    days = [pd.read_parquet(path) for path in sorted((shared_data / "nsl-kdd" / "stream").glob("*.parquet"))]
    past, future = pd.concat(days[:6]), pd.concat(days[6:])
    normal = past[past["label"] == 0].sample(frac=1, random_state=0)
    held_out = len(normal) // 5
    normal[:held_out].to_parquet(tmp_path / "calibration.parquet", index=False)
    normal[held_out:].to_parquet(tmp_path / "training.parquet", index=False)
    features = tuple(
        Column(name=name, kind="numeric" if pd.api.types.is_numeric_dtype(normal[name]) else "categorical")
        for name in normal.columns.drop(["label", "event_time"])
    )
    request = TrainingRequest(
        model="network",
        windows=(),
        schema=FeatureSchema(features=features, time_column="event_time", label_column="label"),
        detector=DetectorSpec(),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=1,
        seed=0,
        champion_version=None,
    )
    job = TrainingJob(
        request=request,
        training_rows=str(tmp_path / "training.parquet"),
        calibration_rows=str(tmp_path / "calibration.parquet"),
        reference_rows=str(tmp_path / "training.parquet"),
        held_out_rows=str(tmp_path / "training.parquet"),
        output=str(tmp_path / "output"),
    )
    result = POOLS["local"](job, tmp_path / "work", timeout=300)
    scores = Scorer.load(Path(result.artifact)).score(future)
    assert (
        roc_auc_score(future["label"], scores) >= 0.95
    )  # published: 0.957 for PCA, 0.947 for isolation forest


def test_ranks_know_no_orchestrator_registry_drift_library_or_object_store() -> None:
    program = "import sys, training.job, training.fit; print([n for n in sys.argv[1:] if n in sys.modules])"
    command = [sys.executable, "-c", program, "prefect", "mlflow", "evidently", "boto3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shards_partition_the_file_whatever_its_row_groups(tmp_path: Path, size: int) -> None:
    path = tmp_path / "rows.parquet"
    make_rows(23, 1).to_parquet(path, index=False, row_group_size=5)
    assert pq.ParquetFile(path).num_row_groups == 5
    for rank in range(size):
        shard = read_shard(path, ["row", "absent"], rank, size)
        assert list(shard.columns) == ["row"]
        assert shard["row"].tolist() == list(range(rank, 23, size))


def test_a_sample_is_drawn_without_replacement_and_keeps_the_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    make_rows(100, 1).to_parquet(path, index=False, row_group_size=30)
    drawn = read_sample(path, ["row"], 10, seed=1)["row"].tolist()
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 10
    assert drawn == read_sample(path, ["row"], 10, seed=1)["row"].tolist()
    assert drawn != read_sample(path, ["row"], 10, seed=2)["row"].tolist()
    assert read_sample(path, ["row"], 1000, seed=1)["row"].tolist() == list(range(100))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InvalidWindowError, match=r"rows\.parquet is no readable Parquet file"):
        read_shard(tmp_path / "rows.parquet", ["a"], 0, 1)
