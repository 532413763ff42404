"""What the benchmark `scoring` scores with and what it scores, each made in a process of its own.

The champion is the default autoencoder with random weights: training would change its scores, not its speed.
"""

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from flows.installation import Installation
from infra.settings import load_settings
from monitoring.history import History
from monitoring.records import PromotionRecord
from training import artifact
from training.detectors import detector
from training.preprocessing import fit_preprocessing
from training.scorer import Scorer, open_network
from training.types import DetectorSpec, PromotionOutcome, Threshold, TrainingRequest, TrainingResult

from .champions import TARGET, schema_of

STREAM = Path(__file__).resolve().parents[3] / "shared" / "data" / "nsl-kdd" / "stream"
TRAINED_ROWS = 10_000
ROWS_PER_GROUP = 500_000


def connections(rows: int, seed: int) -> pd.DataFrame:
    """Draw network connections of NSL-KDD: 38 numeric columns and 3 of text."""
    days = [pd.read_parquet(path) for path in sorted(STREAM.glob("*.parquet"))]
    known = pd.concat(days, ignore_index=True).drop(columns=["event_time", "label"])
    return known.sample(rows, replace=True, random_state=seed, ignore_index=True)


def readings(rows: int, seed: int, columns: int = 10) -> pd.DataFrame:
    """Draw float64 sensor readings."""
    values = np.random.default_rng(seed).normal(size=(rows, columns))
    return pd.DataFrame(values, columns=[f"sensor_{position:02}" for position in range(columns)])


def few(rows: int, seed: int) -> pd.DataFrame:
    """Draw five columns of float32 readings."""
    return readings(rows, seed, columns=5).astype(np.float32)


CASES: dict[str, Callable[[int, int], pd.DataFrame]] = {
    "nsl-kdd": connections,
    "readings": readings,
    "few": few,
}


def write_rows(case: str, path: Path, rows: int) -> None:
    """Write `rows` rows, one row group at a time."""
    draw = CASES[case]
    with pq.ParquetWriter(path, pa.Schema.from_pandas(draw(1, 0))) as writer:
        for start in range(0, rows, ROWS_PER_GROUP):
            drawn = draw(min(ROWS_PER_GROUP, rows - start), start)
            writer.write_table(pa.Table.from_pandas(drawn, preserve_index=False))


def make_home(case: str, folder: Path) -> None:
    """Register the champion of a case in `folder`/home, and leave its Keras model and artifact beside it."""
    installation = Installation(load_settings(None, {"home": folder / "home"}))
    request, result = _build(CASES[case](TRAINED_ROWS, 1), folder)
    version = installation.registry.register(request, result, reason="benchmark")
    promotion = PromotionRecord(
        version=version, from_version=None, by="gates", outcome=PromotionOutcome.PROMOTED, reason="benchmark"
    )
    installation.ledger.append(History(), promotion)


def _build(rows: pd.DataFrame, folder: Path) -> tuple[TrainingRequest, TrainingResult]:
    schema, sealed = schema_of(rows), folder / "artifact"
    sealed.mkdir(parents=True)
    request = TrainingRequest(
        model="benchmark",
        windows=(),
        schema=schema,
        detector=DetectorSpec(),
        target_alert_rate=TARGET,
        threshold_method="quantile",
        world_size=1,
        seed=0,
        champion_version=None,
    )
    preprocessing = fit_preprocessing(schema, rows, lambda array: array)
    network = _network(preprocessing.transform(rows), folder)
    threshold = Threshold(
        value=1.0, method="quantile", target_alert_rate=TARGET, calibration_rows=TRAINED_ROWS
    )
    scorer = Scorer(
        schema=schema,
        threshold=threshold,
        preprocessing=preprocessing,
        session=open_network(network),
    )
    scores = scorer.score(rows)
    threshold = Threshold(**asdict(threshold) | {"value": float(np.quantile(scores, 1 - TARGET))})
    (sealed / artifact.NETWORK).write_bytes(network)
    (sealed / artifact.PREPROCESSING).write_text(preprocessing.to_json())
    for name, value in (
        (artifact.SCHEMA, asdict(schema)),
        (artifact.THRESHOLD, asdict(threshold)),
        (artifact.LINEAGE, {"request": asdict(request)}),
    ):
        (sealed / name).write_text(json.dumps(value))
    for name in (artifact.REFERENCE, artifact.HELD_OUT, artifact.CHECK_ROWS):
        rows.to_parquet(sealed / name, index=False)
    for name in (artifact.CALIBRATION_SCORES, artifact.CHECK_SCORES):
        np.save(sealed / name, scores)
    artifact.seal(sealed)
    result = TrainingResult(
        request_id=request.id,
        world_size=1,
        rows=len(rows),
        epochs=0,
        loss=float(scores.mean()),
        seconds=0.0,
        threshold=threshold,
        artifact=str(sealed),
    )
    return request, result


def _network(features: np.ndarray, folder: Path) -> bytes:
    """Save the scoring model as Keras does and return it as ONNX, exported as a training does."""
    import keras  # noqa: PLC0415 - files are written without it

    from .keras_peer import MODEL  # noqa: PLC0415 - likewise

    keras.utils.set_random_seed(0)
    default: Any = detector(DetectorSpec())
    network = default.build(features.shape[1])
    for weights in network.weights:  # the biases too: those of zero would be optimised away
        weights.assign(keras.random.normal(weights.shape, stddev=0.1))
    model: Any = network.scoring_model(lambda: iter([features]), lambda sums: sums)
    model(features[:1])
    model.save(folder / MODEL)
    exported = folder / "network.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf2onnx is older than NumPy 2 and says so at length
        model.export(exported, format="onnx", verbose=False)
    return exported.read_bytes()


if __name__ == "__main__":
    what, name, *words = sys.argv[1:]
    if what == "home":
        make_home(name, Path(words[0]))
    else:
        write_rows(name, Path(words[0]), int(words[1]))
