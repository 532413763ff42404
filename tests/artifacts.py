"""A small real artifact without TensorFlow: a linear autoencoder (principal components) as ONNX."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pandas as pd
from onnx import TensorProto, helper, numpy_helper

from training import artifact
from training.preprocessing import fit_preprocessing
from training.scorer import Scorer
from training.types import (
    Column,
    DetectorSpec,
    FeatureSchema,
    Threshold,
    TrainingRequest,
    TrainingResult,
    WindowVersion,
)

EPOCHS = [
    {"loss": loss, "validation_loss": loss + 0.1, "rows_per_second": 1000.0} for loss in (0.9, 0.4, 0.5)
]

SCHEMA = FeatureSchema(
    features=(
        Column(name="pressure", kind="numeric"),
        Column(name="flow", kind="numeric"),
        Column(name="level", kind="numeric"),
        Column(name="pump", kind="categorical"),
    ),
    time_column="at",
)


def normal_rows(rows: int, seed: int = 0, *, shift: float = 0.0) -> pd.DataFrame:
    """Draw correlated rows with whole numbers, missing values and a categorical column among them.

    `shift` moves the level off its relation to the load: what was learned with another one scores high.
    """
    generator = np.random.default_rng(seed)
    load = generator.normal(size=rows)
    flow = 10 + 3 * load + generator.normal(scale=0.2, size=rows)
    flow[::50] = np.nan
    return pd.DataFrame(
        {
            "at": pd.date_range("2026-01-05", periods=rows, freq="min", tz="UTC"),
            "pressure": np.round(200 + 50 * load).astype(np.int64),
            "flow": flow,
            "level": 5 + shift - load + generator.normal(scale=0.1, size=rows),
            "pump": generator.choice(["north", "south"], size=rows),
        }
    )


def training_request(
    *, seed: int = 0, windows: tuple[str, ...] = ("2026-01-05", "2026-01-06"), model: str = "pumps"
) -> TrainingRequest:
    """Ask for the detector that `build_artifact` makes; another seed is another request."""
    return TrainingRequest(
        model=model,
        windows=tuple(WindowVersion(id=window, fingerprint="0" * 16) for window in windows),
        schema=SCHEMA,
        detector=DetectorSpec(name="linear", options={"components": 2}),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=1,
        seed=seed,
        champion_version=None,
    )


def build_artifact(
    folder: Path, request: TrainingRequest, *, rows: int = 400, shift: float = 0.0
) -> TrainingResult:
    """Fit, calibrate and seal an artifact in the new folder `folder`."""
    folder.mkdir(parents=True)
    train, calibration, check = (
        normal_rows(rows, seed=3 * request.seed + part, shift=shift) for part in range(3)
    )
    preprocessing = fit_preprocessing(SCHEMA, train, lambda array: array)
    features = preprocessing.transform(train)
    *_, directions = np.linalg.svd(features, full_matrices=False)
    onnx.save(_network(directions[: int(request.detector.options["components"])]), folder / artifact.NETWORK)
    (folder / artifact.PREPROCESSING).write_text(preprocessing.to_json())
    (folder / artifact.SCHEMA).write_text(json.dumps(asdict(SCHEMA)))
    (folder / artifact.LINEAGE).write_text(
        json.dumps({"request": asdict(request), "figures_of_epochs": EPOCHS})
    )
    train.to_parquet(folder / artifact.REFERENCE)
    calibration.to_parquet(folder / artifact.HELD_OUT)
    check.to_parquet(folder / artifact.CHECK_ROWS)
    # Scores need a scorer and a scorer a sealed folder: sealed once to score, and again with the scores.
    threshold = _seal(folder, request, np.zeros(1), np.zeros(1))
    scorer = Scorer.load(folder)
    threshold = _seal(folder, request, scorer.score(calibration), scorer.score(check))
    return TrainingResult(
        request_id=request.id,
        world_size=1,
        rows=rows,
        epochs=1,
        loss=float(scorer.score(train).mean()),
        seconds=0.1,
        threshold=threshold,
        artifact=str(folder),
    )


def _seal(
    folder: Path,
    request: TrainingRequest,
    calibration_scores: npt.NDArray[np.float64],
    check_scores: npt.NDArray[np.float64],
) -> Threshold:
    threshold = Threshold(
        value=float(np.quantile(calibration_scores, 1 - request.target_alert_rate)),
        method=request.threshold_method,
        target_alert_rate=request.target_alert_rate,
        calibration_rows=len(calibration_scores),
    )
    np.save(folder / artifact.CALIBRATION_SCORES, calibration_scores)
    np.save(folder / artifact.CHECK_SCORES, check_scores)
    (folder / artifact.THRESHOLD).write_text(json.dumps(asdict(threshold)))
    artifact.seal(folder)
    return threshold


def _network(directions: npt.NDArray[np.float32]) -> onnx.ModelProto:
    """Score a row (width,) by its mean squared distance from the span of `directions` (components, width)."""
    width = directions.shape[1]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["features", "projection"], ["reconstruction"]),
            helper.make_node("Sub", ["features", "reconstruction"], ["error"]),
            helper.make_node("Mul", ["error", "error"], ["squared"]),
            helper.make_node("ReduceMean", ["squared"], ["score"], axes=[1], keepdims=0),
        ],
        "linear_autoencoder",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", width])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["rows"])],
        [numpy_helper.from_array((directions.T @ directions).astype(np.float32), "projection")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
