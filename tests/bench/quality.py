"""How well the default detector finds anomalies, beside KNN, isolation forest and PCA on the same splits.

ADBench: train on half of the normal rows, test on the rest and the anomalies; means over five seeds.
NSL-KDD: train on the normal rows of the first six days, a fifth of them held out for the threshold at
their 95th percentile; test on the last six days. The published VAE figures are those of the DTE authors'
table (see shared/data/README.md). No choice is made by looking at a test label.
"""

import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from monitoring.frames import clean_frame
from monitoring.schema import infer_schema
from training.calibrators import CalibrationScores, ThresholdSpec
from training.preprocessing import fit_preprocessing
from training.threshold import calibrate
from training.types import DetectorSpec

from .skab import skab_f1

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SEEDS = range(5)
PUBLISHED_VAE = {
    "cardio": 96.6,
    "thyroid": 98.6,
    "annthyroid": 85.4,
    "mammography": 89.6,
    "pendigits": 94.5,
    "shuttle": 99.4,
    "mnist": 90.2,
}

Scores = Callable[[pd.DataFrame], np.ndarray]


def main() -> None:
    """Print every line of the benchmark `quality`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("HOROVOD_LOG_LEVEL", "error")
    from training import distributed  # noqa: PLC0415 - TensorFlow reads the environment set above

    distributed.start()
    adbench()
    nsl_kdd()
    for case, figures in skab_f1(DATA / "skab", {"IForest": isolation_forest, "PCA": pca}, SEEDS):
        own = figures.pop(case)
        for peer, figure in figures.items():
            emit(f"skab/{case}", "f1", own, peer, figure)


def autoencoder(rows: pd.DataFrame, seed: int) -> Scores:
    """Fit the default detector on one rank, by the code that the ranks of a training run."""
    from training.detectors import detector  # noqa: PLC0415 - likewise
    from training.fit import fit  # noqa: PLC0415 - likewise
    from training.intake import hold_in_memory  # noqa: PLC0415 - likewise

    schema, _ = infer_schema(rows, time_column=None, label_column=None, ignore=[])
    clean = clean_frame(rows, schema)
    preprocessing = fit_preprocessing(schema, clean, lambda array: array)
    with redirect_stdout(io.StringIO()):  # the epochs
        options = detector(DetectorSpec())
        feed = hold_in_memory(preprocessing.transform(clean), options.validation_share, seed)
        fitted = fit(options, feed, seed)
    return lambda frame: np.asarray(
        fitted.model(preprocessing.transform(clean_frame(frame, schema)))
    ).reshape(-1)


def encoded(rows: pd.DataFrame) -> Callable[[pd.DataFrame], np.ndarray]:
    """Encode for the peers: standardised numbers and one-hot categories."""
    columns = pd.get_dummies(rows).columns
    scaler = StandardScaler().fit(pd.get_dummies(rows).to_numpy(float))
    return lambda frame: scaler.transform(
        pd.get_dummies(frame).reindex(columns=columns, fill_value=0).to_numpy(float)
    )


def knn(rows: pd.DataFrame, seed: int) -> Scores:
    """Mean distance to the five nearest training rows."""
    del seed
    encode = encoded(rows)
    index = NearestNeighbors(n_neighbors=5).fit(encode(rows))
    return lambda frame: index.kneighbors(encode(frame))[0].mean(axis=1)


def isolation_forest(rows: pd.DataFrame, seed: int) -> Scores:
    """scikit-learn's isolation forest with its defaults."""
    encode = encoded(rows)
    forest = IsolationForest(random_state=seed).fit(encode(rows))
    return lambda frame: -forest.score_samples(encode(frame))


def pca(rows: pd.DataFrame, seed: int) -> Scores:
    """Reconstruction error of half as many components as there are encoded columns."""
    encode = encoded(rows)
    data = encode(rows)
    model = PCA(max(1, data.shape[1] // 2), random_state=seed).fit(data)

    def score(frame: pd.DataFrame) -> np.ndarray:
        values = encode(frame)
        errors: np.ndarray = ((values - model.inverse_transform(model.transform(values))) ** 2).sum(axis=1)
        return errors

    return score


PEERS = {"KNN": knn, "IForest": isolation_forest, "PCA": pca}


def adbench() -> None:
    """The half-of-normals protocol on the seven sets with a target."""
    means: dict[str, list[float]] = {name: [] for name in ("autoencoder", *PEERS)}
    for name, published in PUBLISHED_VAE.items():
        stored = np.load(DATA / "adbench" / f"{name}.npz")
        rows, labels = pd.DataFrame(stored["X"]).add_prefix("x"), stored["y"].astype(int)
        figures: dict[str, list[float]] = {model: [] for model in means}
        for seed in SEEDS:
            normal = np.random.default_rng(seed).permutation(np.flatnonzero(labels == 0))
            train, test = (
                normal[: len(normal) // 2],
                np.r_[normal[len(normal) // 2 :], np.flatnonzero(labels)],
            )
            for model, make in {"autoencoder": autoencoder, **PEERS}.items():
                score = make(rows.take(train), seed)
                figures[model].append(100 * roc_auc_score(labels[test], score(rows.take(test))))
        value = float(np.mean(figures["autoencoder"]))
        emit(f"adbench/{name}", "roc_auc", value, "VAE (published)", published)
        for model, runs in figures.items():
            means[model].append(float(np.mean(runs)))
            if model != "autoencoder":
                emit(f"adbench/{name}", "roc_auc", value, model, float(np.mean(runs)))
    own = float(np.mean(means["autoencoder"]))
    emit("adbench/mean", "roc_auc", own, "VAE (published)", float(np.mean(list(PUBLISHED_VAE.values()))))
    for model in PEERS:
        emit("adbench/mean", "roc_auc", own, model, float(np.mean(means[model])))


def nsl_kdd() -> None:
    """The stream's first six days against its last six."""
    days = [pd.read_parquet(path) for path in sorted((DATA / "nsl-kdd" / "stream").glob("*.parquet"))]
    before, after = pd.concat(days[:6]), pd.concat(days[6:])
    normal = before.query("label == 0").drop(columns=["event_time", "label"]).reset_index(drop=True)
    test, labels = after.drop(columns=["event_time", "label"]), after["label"].to_numpy()
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in ("autoencoder", *PEERS)}
    for seed in SEEDS:
        held_out = np.random.default_rng(seed).random(len(normal)) < 0.2
        for model, make in {"autoencoder": autoencoder, **PEERS}.items():
            score = make(normal[~held_out], seed)
            calibration = CalibrationScores(normal=score(normal[held_out]).astype(float))
            threshold = calibrate(ThresholdSpec(target_alert_rate=0.05), calibration).value
            scores = score(test)
            alerts = scores > threshold
            figures[model].append(
                {
                    "roc_auc": 100 * roc_auc_score(labels, scores),
                    "average_precision": 100 * average_precision_score(labels, scores),
                    "recall": 100 * float(alerts[labels == 1].mean()),
                    "specificity": 100 * float(1 - alerts[labels == 0].mean()),
                }
            )
    for metric in figures["autoencoder"][0]:
        means = {model: float(np.mean([run[metric] for run in runs])) for model, runs in figures.items()}
        for model in PEERS:
            emit("nsl-kdd", metric, means["autoencoder"], model, means[model])


def emit(case: str, metric: str, value: float, peer: str, peer_value: float) -> None:
    """Print one line; a ratio above 1 means better than the peer."""
    line = {
        "bench": "quality",
        "case": case,
        "metric": metric,
        "value": round(value, 2),
        "unit": "%",
        "peer": peer,
        "peer_value": round(peer_value, 2),
        "ratio": round(value / peer_value, 3),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
