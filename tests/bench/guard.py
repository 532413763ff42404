"""What unlabelled attacks in new windows cost the next detector, with and without the contamination guard.

NSL-KDD: the next model trains on days 9 and 10 and is judged on days 11 and 12, by its recall and its false
alarms at its own threshold. Into the normal rows of days 9 and 10 come attacks of days 7 to 10, as many as
make up 5 % of the rows, some of them repeatedly. The champion is *fresh* (days 7 and 8), *drifted* (days 1 to
3), *far* (days 1 to 3, and since then three columns in ten are read in another unit and from another zero, so
that it alerts on every row), or *recoded* (days 1 to 3, and since then every category has another name).
`none` is without a guard; `former` left the champion's alerts out of training, but not out of calibration,
while they were at most 1.5 times its target. Labels only make the rows up.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd

from monitoring.frames import clean_frame
from monitoring.schema import infer_schema
from training.calibrators import CalibrationScores, ThresholdSpec
from training.guard import champion_excess, guard_rows
from training.scorer import Scorer
from training.split import split_rows
from training.threshold import calibrate
from training.types import FeatureSchema, GuardPolicy, Threshold

from .quality import fitted

STREAM = Path(__file__).resolve().parents[3] / "shared" / "data" / "nsl-kdd" / "stream"
SEEDS = range(3)
TARGET = 0.03
CONTAMINATION = 0.05
CHAMPIONS = {"fresh": range(7, 9), "drifted": range(1, 4), "far": range(1, 4), "recoded": range(1, 4)}
GUARDS = ("none", "former", "guard")

Masks = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Recall and false alarms on later days, and the share of the new rows left out of training."""

    recall: float
    false_alarms: float
    left_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A fitted detector with its threshold and the rows it was made of."""

    score: Callable[[pd.DataFrame], np.ndarray]
    threshold: Threshold
    reference: pd.DataFrame


def main() -> None:
    """Print every line of the benchmark `guard`, means over the seeds."""
    start()
    clean = mean(measure("fresh", 0, "none", seed) for seed in SEEDS)
    for champion in CHAMPIONS:
        for share in (0, CONTAMINATION):
            for guard in GUARDS:
                found = mean(measure(champion, share, guard, seed) for seed in SEEDS)
                case = f"nsl-kdd/{champion}/{share:.0%} attacks/{guard}"
                emit(case, "recall", found.recall, "clean data", clean.recall)
                emit(case, "false_alarm_rate", found.false_alarms, "target", TARGET)
                emit(case, "left_out", found.left_out)


def start() -> None:
    """Start TensorFlow on the processor, on one rank."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("HOROVOD_LOG_LEVEL", "error")
    from training import distributed  # noqa: PLC0415 - TensorFlow reads the environment set above

    distributed.start()


@lru_cache(maxsize=64)
def measure(champion: str, share: float, guard: str, seed: int) -> Outcome:
    """Train the next model on new rows with a share of attacks among them, and judge it on later days."""
    change = {"far": in_other_units, "recoded": renamed}.get(champion, pd.DataFrame.copy)
    rows, later = change(new_rows(share, seed)), change(days(range(11, 13)))
    training, calibration = masks(guard, rows, fitted_champion(CHAMPIONS[champion], seed), seed)
    model = fit(rows, training, calibration, seed)
    alerts, attacks = model.score(later) > model.threshold.value, later["label"].to_numpy() == 1
    return Outcome(
        recall=float(alerts[attacks].mean()),
        false_alarms=float(alerts[~attacks].mean()),
        left_out=float(1 - training.mean()),
    )


def masks(guard: str, rows: pd.DataFrame, champion: Model, seed: int) -> Masks:
    """Return the rows that may train and those that may calibrate."""
    everything = np.ones(len(rows), dtype=bool)
    if guard == "none":
        return everything, everything
    if guard == "former":
        alerts = champion.score(rows) > champion.threshold.value
        return (~alerts if alerts.mean() <= 1.5 * TARGET else everything), everything
    policy = GuardPolicy()
    scorer = cast(
        "Scorer",
        SimpleNamespace(score=champion.score, threshold=champion.threshold, schema=feature_schema()),
    )
    guarded = guard_rows(
        rows,
        feature_schema(),
        known=~everything,
        excess=champion_excess(scorer, champion.reference, rows, policy.trusted_alert_factor),
        target_alert_rate=TARGET,
        policy=policy,
        seed=seed,
    )
    return guarded.training, guarded.calibration


@lru_cache(maxsize=8)
def fitted_champion(numbers: range, seed: int) -> Model:
    """Train a champion on the normal rows of some days."""
    rows = days(numbers).query("label == 0").reset_index(drop=True)
    everything = np.ones(len(rows), dtype=bool)
    return fit(rows, everything, everything, seed)


def fit(rows: pd.DataFrame, training: np.ndarray, calibration: np.ndarray, seed: int) -> Model:
    """Split as the product does, fit the default detector, set its threshold."""
    trains, calibrates, _ = split_rows(len(rows), seed)
    features = rows[feature_schema().names()]
    score = fitted("autoencoder", features.iloc[trains[training[trains]]].reset_index(drop=True), seed)
    scores = score(features.iloc[calibrates[calibration[calibrates]]]).astype(float)
    return Model(
        score=lambda frame: score(frame[features.columns]).astype(float),
        threshold=calibrate(ThresholdSpec(target_alert_rate=TARGET), CalibrationScores(normal=scores)),
        reference=features.iloc[np.sort(np.concatenate((trains, calibrates)))],
    )


def new_rows(share: float, seed: int) -> pd.DataFrame:
    """Normal rows of days 9 and 10 with attacks as a share of the whole."""
    normal = days(range(9, 11)).query("label == 0")
    attacks = days(range(7, 11)).query("label == 1")
    count = round(share / (1 - share) * len(normal))
    added = attacks.sample(count, replace=count > len(attacks), random_state=seed)
    return pd.concat([normal, added]).sample(frac=1, random_state=seed).reset_index(drop=True)


def in_other_units(rows: pd.DataFrame) -> pd.DataFrame:
    """Read three in ten numeric columns in another unit and from another zero."""
    names = feature_schema().names("numeric")
    chosen = np.random.default_rng(0).choice(names, int(0.3 * len(names)), replace=False)
    moved = rows.copy()
    for name, deviation in days(range(7, 13))[chosen].std().replace(0, 1).items():
        moved[name] = 1.5 * rows[name] + 4 * deviation
    return moved


def renamed(rows: pd.DataFrame) -> pd.DataFrame:
    """Give every category another name."""
    names = feature_schema().names("categorical")
    return rows.assign(**{name: "renamed-" + rows[name] for name in names})


@lru_cache(maxsize=8)
def days(numbers: range) -> pd.DataFrame:
    """Return the rows of some days, counted from 1."""
    files = sorted(STREAM.glob("*.parquet"))
    frames = [clean_frame(pd.read_parquet(files[number - 1]), feature_schema()) for number in numbers]
    return pd.concat(frames, ignore_index=True)


@lru_cache(maxsize=1)
def feature_schema() -> FeatureSchema:
    """Return the schema of the stream, with its label column."""
    first = pd.read_parquet(min(STREAM.glob("*.parquet")))
    return infer_schema(first, time_column="event_time", label_column="label", ignore=[])[0]


def mean(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the mean of each figure."""
    found = list(outcomes)
    return Outcome(
        recall=float(np.mean([outcome.recall for outcome in found])),
        false_alarms=float(np.mean([outcome.false_alarms for outcome in found])),
        left_out=float(np.mean([outcome.left_out for outcome in found])),
    )


def emit(
    case: str, metric: str, value: float, peer: str | None = None, peer_value: float | None = None
) -> None:
    """Print one line, shares in %; a ratio above 1 means better than the peer."""
    ratio = None
    if peer_value is not None:
        better = value / peer_value if metric == "recall" else peer_value / max(value, 1e-9)
        ratio = round(better, 3)
    line = {
        "bench": "guard",
        "case": case,
        "metric": metric,
        "value": round(100 * value, 2),
        "unit": "%",
        "peer": peer,
        "peer_value": None if peer_value is None else round(100 * peer_value, 2),
        "ratio": ratio,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
