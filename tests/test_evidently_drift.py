"""Column scores by the real Evidently, and the proof that calibration resamples the same statistics."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from monitoring.distances import METHODS
from monitoring.drift import DriftPolicy, calibrate_thresholds, drift_verdict
from monitoring.evidently_drift import column_scores
from monitoring.schema import infer_schema
from monitoring.verdicts import DriftStatus
from pairs import distance
from training.errors import InvalidWindowError
from training.types import Column, FeatureSchema

SCHEMA = FeatureSchema(
    features=(Column(name="x", kind="numeric"), Column(name="word", kind="categorical")), time_column="at"
)

POLICY = DriftPolicy()
METHODS_OF = POLICY.methods_of(SCHEMA)

FURTHEST_OF_NORMAL = 7.8
"""Deviations at one span beyond the middle 99 % of a normal column, where far tails are cut."""


def words(values: Sequence[str | None]) -> pd.Series:
    return pd.Series(values, dtype=object)


def frame(x: np.ndarray, word: Sequence[str | None] | None = None) -> pd.DataFrame:
    return pd.DataFrame({"word": words(word or (["a", "b"] * len(x))[: len(x)]), "x": x})


def score(reference: np.ndarray, current: np.ndarray) -> float | None:
    return column_scores(frame(reference), frame(current), SCHEMA, METHODS_OF)["x"]


@pytest.mark.parametrize(
    "policy",
    [
        DriftPolicy(),
        DriftPolicy(numeric_method="ks", categorical_method="psi"),
        DriftPolicy(numeric_method="psi", methods={"few words": "psi"}),
    ],
    ids=lambda policy: f"{policy.numeric_method} {policy.categorical_method}",
)
def test_calibration_draws_what_evidently_computes(policy: DriftPolicy) -> None:
    generator = np.random.default_rng(0)
    columns: dict[str, Callable[[int], np.ndarray | pd.Series]] = {
        "normal": lambda rows: generator.normal(3, 2, rows),
        "skewed": lambda rows: generator.lognormal(0, 3, rows),
        "count": lambda rows: generator.integers(0, 4, rows).astype(float),
        "rare": lambda rows: np.where(generator.random(rows) < 0.01, 1.0, 0.0),
        "tiny": lambda rows: generator.normal(1, 1e-5, rows),
        "gaps": lambda rows: np.where(generator.random(rows) < 0.2, np.nan, generator.normal(size=rows)),
        "few words": lambda rows: words(
            [["a", "b", None][place] for place in generator.integers(0, 3, rows)]
        ),
        "many words": lambda rows: words([f"w{value % 99}" for value in generator.zipf(1.5, size=rows)]),
    }
    reference, current = (
        pd.DataFrame({name: draw(rows) for name, draw in columns.items()}) for rows in (1_500, 400)
    )
    schema = FeatureSchema(
        features=tuple(
            Column(name=name, kind="categorical" if "words" in name else "numeric") for name in columns
        )
    )
    scores = column_scores(reference, current, schema, policy.methods_of(schema))
    for column in schema.features:
        method = METHODS[policy.methods_of(schema)[column.name]]
        expected = distance(reference[column.name], current[column.name], column.kind, method)
        assert expected > 0.0001
        assert scores[column.name] == pytest.approx(expected, rel=1e-9, abs=1e-9), column.name


def test_a_shift_of_a_column_of_tiny_values_is_seen() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(1, 1e-5, 1_000)
    assert score(values, values + 2e-5) == pytest.approx(2e-5 / values.std(), rel=1e-6)


def test_huge_values_give_finite_scores() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=500)
    assert score(values * 1e300, (values + 1) * 1e300) == pytest.approx(1 / values.std(), rel=1e-6)
    assert score(values, np.full(500, 1e300)) == pytest.approx(FURTHEST_OF_NORMAL, rel=0.1)


@pytest.mark.parametrize("rows", [1, 2, 500])
@pytest.mark.parametrize("location", [0.0, 1e3, 1e9, 1e17])
def test_a_window_that_hardly_varies_is_scored_wherever_it_lies(rows: int, location: float) -> None:
    values = np.random.default_rng(0).normal(size=500)
    window = np.where(np.arange(rows) % 2 == 0, location, np.nextafter(location, np.inf))
    expected = min(abs(location), FURTHEST_OF_NORMAL)
    found = score(values, window)
    assert found is not None
    assert found == pytest.approx(expected, rel=0.1, abs=1)


def test_a_constant_reference_is_scored_by_the_share_that_differs() -> None:
    seven = np.full(300, 7.0)
    assert score(seven, seven[:100]) == 0
    assert score(seven, seven + 1) == pytest.approx(10)
    assert score(seven, np.where(np.arange(300) < 30, 1e9, 7.0)) == pytest.approx(1)


def test_columns_without_values_on_a_side_are_unscored_and_the_others_scored() -> None:
    sound = frame(np.arange(100.0))
    hollow = frame(np.full(100, np.inf), [None] * 100)
    assert column_scores(sound, hollow, SCHEMA, METHODS_OF) == {"x": None, "word": None}
    assert column_scores(hollow, sound, SCHEMA, METHODS_OF) == {"x": None, "word": None}
    scores = column_scores(sound, hollow.assign(word=sound["word"]), SCHEMA, METHODS_OF)
    assert scores == {"x": None, "word": 0.0}


def test_an_empty_window_scores_nothing() -> None:
    sound = frame(np.arange(100.0))
    assert column_scores(sound, sound.iloc[:0], SCHEMA, METHODS_OF) == {"x": None, "word": None}


def test_extra_and_nullable_columns_do_no_harm() -> None:
    sound = frame(np.arange(100.0))
    odd = sound.assign(at="now", junk=pd.Series([[1]] * 100, dtype=object), x=sound["x"].astype("Int64"))
    assert column_scores(sound, odd, SCHEMA, METHODS_OF) == {"x": 0.0, "word": 0.0}


def test_a_missing_or_retyped_column_is_an_error_and_never_a_score() -> None:
    sound = frame(np.arange(100.0))
    with pytest.raises(InvalidWindowError, match="'x'"):
        column_scores(sound, sound.drop(columns="x"), SCHEMA, METHODS_OF)
    with pytest.raises(InvalidWindowError, match="'x'"):
        column_scores(sound, sound.assign(x="one"), SCHEMA, METHODS_OF)


def test_the_cap_is_seeded() -> None:
    generator = np.random.default_rng(0)
    before, after = frame(generator.normal(size=900)), frame(generator.normal(size=900))
    first = column_scores(before, after, SCHEMA, METHODS_OF, seed=1, row_cap=100)
    assert first == column_scores(before, after, SCHEMA, METHODS_OF, seed=1, row_cap=100)
    assert first != column_scores(before, after, SCHEMA, METHODS_OF, seed=2, row_cap=100)


def test_importing_it_brings_no_tensorflow_and_no_telemetry() -> None:
    code = (
        "import sys, monitoring.evidently_drift, evidently.telemetry as telemetry; "
        "print('tensorflow' in sys.modules, telemetry.event_logger.is_enabled())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DO_NOT_TRACK"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["False", "False"]


def test_the_default_policy_finds_the_real_drift_of_nsl_kdd_and_nothing_before(shared_data: Path) -> None:
    days = [pd.read_parquet(path) for path in sorted((shared_data / "nsl-kdd" / "stream").glob("*.parquet"))]
    schema, _ = infer_schema(days[0], time_column="event_time", label_column="label", ignore=())
    reference = pd.concat(days[:3]).sample(5_000, random_state=0)
    policy = DriftPolicy()
    statuses = []
    for day in days[3:8]:
        thresholds = calibrate_thresholds(reference, schema, rows=len(day), policy=policy, seed=0)
        scores = column_scores(reference, day, schema, policy.methods_of(schema))
        found = drift_verdict(scores, schema, thresholds, rows=len(day), policy=policy)
        assert None not in scores.values()
        statuses.append(found.status)
    assert statuses == [DriftStatus.STABLE] * 3 + [DriftStatus.DRIFTED] * 2


def test_a_single_far_reading_neither_hides_a_drift_nor_is_one() -> None:
    generator = np.random.default_rng(0)
    schema = FeatureSchema(features=(Column(name="x", kind="numeric"),))
    calm, window = generator.normal(size=3_000), generator.normal(size=1_000)
    far = np.append(calm[:-1], 1e6)
    assert scores_of(schema, far, window + 1) > 0.9
    assert scores_of(schema, calm, np.append(window[:-1], 1e6)) < 0.1


def scores_of(schema: FeatureSchema, reference: np.ndarray, current: np.ndarray) -> float:
    score = column_scores(
        pd.DataFrame({"x": reference}), pd.DataFrame({"x": current}), schema, POLICY.methods_of(schema)
    )["x"]
    assert score is not None
    return score
