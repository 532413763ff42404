"""How well the detectors of tables find anomalies, beside KNN, isolation forest and PCA on the same splits.

ADBench: train on half of the normal rows, test on the rest and the anomalies; means over five seeds.
NSL-KDD: train on the normal rows of the first six days, which are those of the published 20 % part, a fifth
of them held out for the threshold at their 95th percentile; test on the last six days. These hold the
normal rows of the published test part and 192 of its 12,833 attacks: for average precision and accuracy, each
of these counts as many times as makes up the published mixture. The other figures do not depend on it; with
so few attacks, a recall of 85 % has a standard error of 2.6 points, and the accuracy one of 1.5.
Published figures are those that shared/data/README.md names. No choice is made by looking at a test label.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from multiprocessing import get_context
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
from training.detectors import DETECTORS, detector
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

PUBLISHED_NSL_KDD = {
    "PCA (published)": {"roc_auc": 95.7, "average_precision": 95.2, "accuracy": 87.2},
    "IForest (published)": {"roc_auc": 94.7, "average_precision": 95.9, "accuracy": 78.8},
}
PUBLISHED_ATTACK_SHARE = 12_833 / 22_544

Figures = dict[str, float]
Scores = Callable[[pd.DataFrame], np.ndarray]
Make = Callable[[pd.DataFrame, int], Scores]


def main() -> None:
    """Print every line of the benchmark `quality`; each core has a process, and each process a thread."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "HOROVOD_LOG_LEVEL": "error"}
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, get_context("spawn"), initializer=start_rank) as pool:
        nsl_kdd(pool)
        adbench(pool)
        skab(pool)


def start_rank() -> None:
    """Make this process the only rank of its own trainings."""
    from training import distributed  # noqa: PLC0415 - TensorFlow reads the environment that `main` sets

    distributed.start()


def fitted(name: str, rows: pd.DataFrame, seed: int) -> Scores:
    """Fit a detector with its defaults on one rank, by the code that the ranks of a training run."""
    from training.fit import fit  # noqa: PLC0415 - likewise
    from training.intake import hold_in_memory  # noqa: PLC0415 - likewise

    schema, _ = infer_schema(rows, time_column=None, label_column=None, ignore=[])
    clean = clean_frame(rows, schema)
    preprocessing = fit_preprocessing(schema, clean, lambda array: array)
    with redirect_stdout(io.StringIO()):  # the epochs
        options = detector(DetectorSpec(name=name))
        feed = hold_in_memory(preprocessing.transform(clean), options.validation_share, seed)
        model = fit(options, feed, seed).model
    return lambda frame: np.asarray(model(preprocessing.transform(clean_frame(frame, schema)))).reshape(-1)


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


PEERS: dict[str, Make] = {"KNN": knn, "IForest": isolation_forest, "PCA": pca}
OWN: dict[str, Make] = {
    name: partial(fitted, name) for name in DETECTORS if detector(DetectorSpec(name=name)).window_rows == 1
}


def adbench(pool: Executor) -> None:
    """The half-of-normals protocol on the seven sets with a target."""
    figures: dict[str, Figures] = {}
    for name, published in PUBLISHED_VAE.items():
        found = mean(pool.map(partial(adbench_figures, name), SEEDS))
        figures[name] = found | {"VAE (published)": published}
        compare(f"adbench/{name}", "roc_auc", figures[name])
    compare("adbench/mean", "roc_auc", mean(figures.values()))


def adbench_figures(name: str, seed: int) -> Figures:
    """Return the AUC-ROC in percent of every model on one set."""
    stored = np.load(DATA / "adbench" / f"{name}.npz")
    rows, labels = pd.DataFrame(stored["X"]).add_prefix("x"), stored["y"].astype(int)
    normal = np.random.default_rng(seed).permutation(np.flatnonzero(labels == 0))
    train, rest = np.split(normal, [len(normal) // 2])
    test = np.r_[rest, np.flatnonzero(labels)]
    return {
        model: 100 * float(roc_auc_score(labels[test], make(rows.take(train), seed)(rows.take(test))))
        for model, make in {**OWN, **PEERS}.items()
    }


def nsl_kdd(pool: Executor) -> None:
    """The stream's first six days against its last six."""
    runs = list(pool.map(nsl_kdd_models, SEEDS))
    for metric in runs[0]["autoencoder"]:
        means = mean({model: figures[metric] for model, figures in run.items()} for run in runs)
        published = {name: row[metric] for name, row in PUBLISHED_NSL_KDD.items() if metric in row}
        compare("nsl-kdd", metric, means | published)


def nsl_kdd_models(seed: int) -> dict[str, Figures]:
    """Return the figures of every model."""
    days = [pd.read_parquet(path) for path in sorted((DATA / "nsl-kdd" / "stream").glob("*.parquet"))]
    before, after = pd.concat(days[:6]), pd.concat(days[6:])
    normal = before.query("label == 0").drop(columns=["event_time", "label"]).reset_index(drop=True)
    test, labels = after.drop(columns=["event_time", "label"]), after["label"].to_numpy() == 1
    held_out = np.random.default_rng(seed).random(len(normal)) < 0.2
    found = {}
    for model, make in {**OWN, **PEERS}.items():
        score = make(normal[~held_out], seed)
        calibration = CalibrationScores(normal=score(normal[held_out]).astype(float))
        threshold = calibrate(ThresholdSpec(target_alert_rate=0.05), calibration).value
        found[model] = nsl_kdd_figures(labels, score(test), threshold)
    return found


def nsl_kdd_figures(labels: np.ndarray, scores: np.ndarray, threshold: float) -> Figures:
    """Return all figures in percent, those that depend on the share of attacks at the published one."""
    alerts, attacks = scores > threshold, PUBLISHED_ATTACK_SHARE
    recall, specificity = float(alerts[labels].mean()), float(1 - alerts[~labels].mean())
    weights = np.where(labels, attacks / labels.sum(), (1 - attacks) / np.sum(~labels))
    figures = {
        "roc_auc": roc_auc_score(labels, scores),
        "average_precision": average_precision_score(labels, scores, sample_weight=weights),
        "accuracy": attacks * recall + (1 - attacks) * specificity,
        "recall": recall,
        "specificity": specificity,
        "average_precision_as_streamed": average_precision_score(labels, scores),
    }
    return {name: 100 * float(figure) for name, figure in figures.items()}


def skab(pool: Executor) -> None:
    """Every detector of sequences beside the peers."""
    peers: dict[str, Make] = {"IForest": isolation_forest, "PCA": pca}
    for case, figures in skab_f1(pool, DATA / "skab", peers, SEEDS):
        own = figures.pop(case)
        for peer, figure in figures.items():
            emit(f"skab/{case}", "f1", own, peer, figure)


def mean(runs: Iterable[Figures]) -> Figures:
    """Return the mean of each figure."""
    found = list(runs)
    return {name: float(np.mean([run[name] for run in found])) for name in found[0]}


def compare(case: str, metric: str, figures: Figures) -> None:
    """Print the figure of each own detector beside that of each peer."""
    for own in OWN:
        for peer, figure in figures.items():
            if peer not in OWN:
                emit(f"{case}/{own}", metric, figures[own], peer, figure)


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
        "ratio": round(value / peer_value, 3) if peer_value else None,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
