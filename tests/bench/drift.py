"""How long the verdict on one window takes, beside Evidently's own preset on the same two frames.

`1M x 10`: ten columns, shifted by nothing up to half a standard deviation. The same columns must be called
as by the preset, but for those whose score lies within a tenth of its threshold. `20k x 2000`: a table too
wide for the preset to be waited for.
"""

import time
from dataclasses import replace

import numpy as np
import pandas as pd
from evidently import Report
from evidently.presets import DataDriftPreset

from monitoring.drift import DriftPolicy, calibrate_thresholds, drift_verdict
from monitoring.evidently_drift import column_scores
from monitoring.score_drift import summary
from monitoring.verdicts import DriftVerdict
from monitoring.window_drift import window_drift

from .champions import champion, schema_of
from .lines import Line

POLICY = DriftPolicy()
SHIFTS = (0.0, 0.0, 0.0, 0.03, 0.06, 0.08, 0.12, 0.15, 0.25, 0.5)
NEAR = 0.1
"""Of a threshold: how close a score may lie for the verdicts to differ."""

LIMIT_S = 60.0
HELD_OUT_ROWS = 10_000
"""As a training stores them."""


def main() -> None:
    """Print every line of the benchmark `drift`."""
    generator = np.random.default_rng(0)
    reference, window = (
        pd.DataFrame(generator.normal(size=(1_000_000, len(SHIFTS)))).rename(columns=lambda c: f"x{c}")
        for _ in range(2)
    )
    window += np.array(SHIFTS)
    seconds, verdict = all_tests(reference, window)
    started = time.perf_counter()
    theirs = preset(reference, window)
    peer_seconds = time.perf_counter() - started
    for metric, own in (
        ("the columns' verdict on one window", columns_alone(reference, window)),
        ("all tests of one window", seconds),
    ):
        Line(
            bench="drift",
            case="1M x 10",
            metric=metric,
            value=own,
            unit="s",
            peer="Evidently's DataDriftPreset",
            peer_value=peer_seconds,
            ratio=peer_seconds / own,
        ).print()
    called = {column.column: bool(column.drifted) for column in verdict.columns}
    clear = {name: score for name, score in theirs.items() if abs(score - 0.1) > NEAR * 0.1}
    agreed = sum(called[name] == (score >= 0.1) for name, score in clear.items())
    Line(
        bench="drift",
        case="1M x 10",
        metric="columns called alike, of those further than a tenth from the threshold",
        value=agreed / len(clear),
        unit=f"share of {len(clear)}",
    ).print()
    wide = pd.DataFrame(generator.normal(size=(40_000, 2_000)).astype(np.float32)).rename(
        columns=lambda c: f"x{c}"
    )
    seconds, _ = all_tests(wide[:20_000], wide[20_000:])
    Line(
        bench="drift",
        case="20k x 2000",
        metric="all tests of one window",
        value=seconds,
        unit="s",
        peer="the limit",
        peer_value=LIMIT_S,
        ratio=LIMIT_S / seconds,
    ).print()


def columns_alone(reference: pd.DataFrame, window: pd.DataFrame) -> float:
    """Return the seconds of what the preset does too: distances of the columns, and a verdict."""
    schema = schema_of(reference)
    started = time.perf_counter()
    scores = column_scores(reference, window, schema, POLICY.methods_of(schema), seed=0)
    thresholds = calibrate_thresholds(reference, schema, rows=len(window), policy=POLICY, seed=0)
    drift_verdict(scores, schema, thresholds, rows=len(window), policy=POLICY)
    return time.perf_counter() - started


def all_tests(reference: pd.DataFrame, window: pd.DataFrame) -> tuple[float, DriftVerdict]:
    """Return the seconds from a window's rows and scores to its verdict."""
    known, score = champion(reference, reference[:HELD_OUT_ROWS])
    known = replace(known, held_out=known.held_out[-HELD_OUT_ROWS:], scores=known.scores[-HELD_OUT_ROWS:])
    scores = score(window)
    started = time.perf_counter()
    verdict = window_drift(window, scores, known, [summary(scores, known)], POLICY, seed=0)
    return time.perf_counter() - started, verdict


def preset(reference: pd.DataFrame, window: pd.DataFrame) -> dict[str, float]:
    """Return the score of each column by Evidently's preset."""
    snapshot = Report([DataDriftPreset()]).run(window, reference)
    return {
        item["config"]["column"]: float(item["value"])
        for item in snapshot.dict()["metrics"]
        if "column" in item.get("config", {})
    }
