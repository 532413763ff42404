"""Drift verdicts and thresholds calibrated for the window's size. No Evidently is needed here."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.distances import METHODS, capped_sample
from monitoring.drift import DriftPolicy, calibrate_thresholds, drift_verdict
from monitoring.schema import infer_schema
from monitoring.verdicts import DriftStatus
from pairs import distance
from training.errors import ConfigurationError, InvalidArtifactError
from training.types import Column, FeatureSchema

POLICY = DriftPolicy()


def numeric_schema(count: int) -> FeatureSchema:
    return FeatureSchema(features=tuple(Column(name=f"x{place}", kind="numeric") for place in range(count)))


def distances(
    reference: pd.DataFrame, current: pd.DataFrame, schema: FeatureSchema
) -> dict[str, float | None]:
    """Score one pair of samples by the statistics that calibration resamples."""
    return {
        name: distance(reference[name], current[name], schema.features[place].kind, METHODS[method])
        for place, (name, method) in enumerate(POLICY.methods_of(schema).items())
    }


def verdict(scores: dict[str, float | None], rows: int = 1_000, policy: DriftPolicy = POLICY) -> DriftStatus:
    schema = numeric_schema(20)
    found = drift_verdict(scores, schema, dict.fromkeys(schema.names(), 0.1), rows=rows, policy=policy)
    assert found.reason
    return found.status


def scores_with(drifted: int = 0, unscored: int = 0, odd: float | None = None) -> dict[str, float | None]:
    values = [0.1] * drifted + [odd] * unscored
    values += [0.0] * (20 - len(values))
    return {f"x{place}": value for place, value in enumerate(values)}


@pytest.mark.parametrize(
    ("scores", "rows", "status"),
    [
        (scores_with(), 1_000, DriftStatus.STABLE),
        (scores_with(drifted=1), 1_000, DriftStatus.DRIFTED),
        (scores_with(drifted=20), 199, DriftStatus.INCONCLUSIVE),
        (scores_with(), 199, DriftStatus.INCONCLUSIVE),
        (scores_with(), 200, DriftStatus.STABLE),
        (scores_with(unscored=4), 1_000, DriftStatus.STABLE),
        (scores_with(unscored=4, odd=float("nan")), 1_000, DriftStatus.STABLE),
        (scores_with(unscored=5), 1_000, DriftStatus.INCONCLUSIVE),
        (scores_with(unscored=5, odd=float("nan")), 1_000, DriftStatus.INCONCLUSIVE),
        (scores_with(drifted=15, unscored=5), 1_000, DriftStatus.INCONCLUSIVE),
        (scores_with(unscored=20), 1_000, DriftStatus.INCONCLUSIVE),
        ({}, 1_000, DriftStatus.INCONCLUSIVE),
        (scores_with(drifted=3, unscored=4), 1_000, DriftStatus.DRIFTED),
        (scores_with(drifted=3, unscored=3, odd=float("inf")), 1_000, DriftStatus.DRIFTED),
    ],
)
def test_only_what_was_measured_is_stable_or_drifted(
    scores: dict[str, float | None], rows: int, status: DriftStatus
) -> None:
    assert verdict(scores, rows) is status


def test_the_reason_names_figures_and_the_furthest_columns() -> None:
    schema = numeric_schema(4)
    thresholds = {"x0": 0.1, "x1": 0.1, "x2": 1.0, "x3": 0.1}
    scores: dict[str, float | None] = {"x0": 0.2, "x1": 0.5, "x2": 0.9, "x3": 0.0}
    found = drift_verdict(scores, schema, thresholds, rows=300, policy=POLICY)
    assert found.share == 0.5
    assert found.drifted_columns == ["x1", "x0"]
    assert "2 of 4 scored columns (0.50)" in found.reason
    assert "x1 0.5 (0.1), x0 0.2 (0.1), x2 0.9 (1)" in found.reason


@pytest.mark.parametrize("threshold", [float("nan"), 0.0, None])
def test_a_column_without_a_sound_threshold_is_unscored(threshold: float | None) -> None:
    schema = numeric_schema(1)
    thresholds = {} if threshold is None else {"x0": threshold}
    found = drift_verdict({"x0": 9.0}, schema, thresholds, rows=1_000, policy=POLICY)
    assert found.status is DriftStatus.INCONCLUSIVE
    assert "x0" in found.reason


@pytest.mark.parametrize(
    "bounds",
    [
        {"drift_share": -0.1},
        {"drift_share": 1.1},
        {"drift_share": float("nan")},
        {"numeric_threshold": 0.0},
        {"categorical_threshold": float("inf")},
        {"alpha": 0.0001},
        {"alpha": 0.6},
        {"max_unscored_share": 1.0},
        {"max_unscored_share": float("nan")},
        {"min_rows": 0},
    ],
)
def test_impossible_policies_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bounds))):
        DriftPolicy(**bounds)  # type: ignore[arg-type] # one float stands for the integer


@given(st.integers(1, 500), st.integers(1, 60))
def test_a_capped_sample_keeps_order_and_covers_every_stretch(rows: int, cap: int) -> None:
    frame = pd.DataFrame({"row": np.arange(rows)})
    sample = capped_sample(frame, seed=3, cap=cap)["row"].to_numpy()
    assert len(sample) == min(rows, cap)
    assert bool((np.diff(sample) > 0).all())
    if rows > cap:
        assert bool((np.abs(sample - (np.arange(cap) + 0.5) * rows / cap) <= rows / cap + 1).all())


def test_a_changed_constant_scores_high_and_one_new_value_low() -> None:
    reference = pd.DataFrame({"x0": np.full(5_000, 7.0)})
    schema = numeric_schema(1)
    assert distances(reference, reference, schema) == {"x0": 0.0}
    assert distances(reference, reference + 1, schema)["x0"] == pytest.approx(10)
    one = reference.where(reference.index.to_series() > 0, 1e9)
    assert distances(reference, one, schema)["x0"] == pytest.approx(10 / 5_000)


def test_distances_survive_huge_and_tiny_values() -> None:
    generator = np.random.default_rng(0)
    before = generator.normal(size=1_000)
    after = generator.normal(size=1_000) + 1
    schema = numeric_schema(1)
    (expected,) = distances(pd.DataFrame({"x0": before}), pd.DataFrame({"x0": after}), schema).values()
    assert expected is not None
    for scale in (1e-200, 1e-5, 1e300):
        (scaled,) = distances(
            pd.DataFrame({"x0": before * scale}), pd.DataFrame({"x0": after * scale}), schema
        ).values()
        assert scaled == pytest.approx(expected, rel=1e-9)


def test_thresholds_shrink_to_the_floor_as_windows_grow() -> None:
    generator = np.random.default_rng(0)
    reference = pd.DataFrame(generator.normal(size=(5_000, 6)), columns=numeric_schema(6).names())
    found = [
        calibrate_thresholds(reference, numeric_schema(6), rows=rows, policy=POLICY, seed=0)["x0"]
        for rows in (50, 200, 5_000)
    ]
    assert found[0] > 2 * POLICY.numeric_threshold
    assert found[0] > found[1] > found[2]
    assert found[2] == POLICY.numeric_threshold


def test_thresholds_follow_the_seed_alone_and_accept_any_reference() -> None:
    generator = np.random.default_rng(0)
    schema = FeatureSchema(
        features=(
            Column(name="x", kind="numeric"),
            Column(name="constant", kind="numeric"),
            Column(name="void", kind="numeric"),
            Column(name="word", kind="categorical"),
        )
    )
    reference = pd.DataFrame(
        {
            "x": np.where(generator.random(800) < 0.3, np.nan, generator.normal(size=800)),
            "constant": 1.0,
            "void": np.nan,
            "word": pd.Series(["a", "b", None, "a"] * 200, dtype=object),
        }
    )
    first = calibrate_thresholds(reference, schema, rows=100, policy=POLICY, seed=1)
    assert first == calibrate_thresholds(reference, schema, rows=100, policy=POLICY, seed=1)
    assert first != calibrate_thresholds(reference, schema, rows=100, policy=POLICY, seed=2)
    assert all(np.isfinite(value) and value >= 0.1 for value in first.values())
    # One new value in a hundred is within what 800 rows leave open; a changed constant is not.
    assert 10 / 100 <= first["constant"] < 10


def test_a_reference_without_rows_calibrates_nothing() -> None:
    with pytest.raises(InvalidArtifactError, match="no rows"):
        calibrate_thresholds(pd.DataFrame({"x0": []}), numeric_schema(1), rows=10, policy=POLICY, seed=0)


@pytest.mark.parametrize(
    "name", ["annthyroid", "mammography", "pendigits", "satellite", "PageBlocks", "Waveform"]
)
def test_false_alarms_stay_at_the_promised_level(shared_data: Path, name: str) -> None:
    """Shuffled rows cannot drift: of 40 windows of any size hardly one may be called drifted."""
    rows = np.load(shared_data / "adbench" / f"{name}.npz")["X"]
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(rows, columns=[f"x{place}" for place in range(rows.shape[1])])
    schema, _ = infer_schema(frame, time_column=None, label_column=None, ignore=())
    policy = DriftPolicy(min_rows=50)
    fixed = dict.fromkeys(schema.names(), 0.1)
    alarms, fixed_alarms = [], []
    reference_rows = len(frame) // 3
    for size, draw in itertools.product((50, 100, 300, 1_000), range(5)):
        shuffled = frame.iloc[generator.permutation(len(frame))]
        reference = shuffled.iloc[:reference_rows]
        thresholds = calibrate_thresholds(reference, schema, rows=size, policy=policy, seed=draw)
        for start in (reference_rows, reference_rows + size):
            scores = distances(reference, shuffled.iloc[start : start + size], schema)
            found = [
                drift_verdict(scores, schema, bounds, rows=size, policy=policy).status
                for bounds in (thresholds, fixed)
            ]
            assert DriftStatus.INCONCLUSIVE not in found
            alarms.append(found[0] is DriftStatus.DRIFTED)
            if size <= 100:
                fixed_alarms.append(found[1] is DriftStatus.DRIFTED)
    assert sum(alarms) <= 2, "more than 2 of 40 have a chance of 0.7 % at 1 %"
    assert sum(fixed_alarms) >= 18, "the fixed 0.1 calls nearly all of 20 small windows drifted"


def test_real_drift_is_found_in_windows_of_300_rows(shared_data: Path) -> None:
    days = [pd.read_parquet(path) for path in sorted((shared_data / "nsl-kdd" / "stream").glob("*.parquet"))]
    schema, _ = infer_schema(days[0], time_column="event_time", label_column="label", ignore=())
    reference = pd.concat(days[:3]).sample(5_000, random_state=0)
    rows = POLICY.min_rows + 100
    thresholds = calibrate_thresholds(reference, schema, rows=rows, policy=POLICY, seed=0)

    def drifted(source: pd.DataFrame) -> int:
        found = [
            drift_verdict(
                distances(reference, source.sample(rows, random_state=draw), schema),
                schema,
                thresholds,
                rows=rows,
                policy=POLICY,
            )
            for draw in range(20)
        ]
        return sum(item.status is DriftStatus.DRIFTED for item in found)

    assert drifted(pd.concat(days[3:6])) <= 1
    assert drifted(pd.concat(days[6:])) >= 18


def test_a_column_of_words_never_seen_is_expected_to_bring_new_ones() -> None:
    """Thousands of categories, each seen once or twice: new ones are no drift, other ones are."""
    schema = FeatureSchema(features=(Column(name="word", kind="categorical"),))
    generator = np.random.default_rng(0)

    def words(prefix: str, rows: int) -> pd.DataFrame:
        texts = [f"{prefix}{number}" for number in np.minimum(generator.zipf(1.5, rows), 4_000)]
        return pd.DataFrame({"word": pd.Series(texts, dtype=object)})

    alarms = 0
    for draw in range(
        5
    ):  # the promise is one over references: a single odd one sees odd windows again and again
        reference = words("w", 3_000)
        bound = calibrate_thresholds(reference, schema, rows=300, policy=POLICY, seed=draw)["word"]
        found = [distances(reference, words("w", 300), schema)["word"] for _ in range(20)]
        alarms += sum((score or 0.0) >= bound for score in found)
        assert (distances(reference, words("v", 300), schema)["word"] or 0.0) > bound
    assert alarms <= 2, "more than 2 of 100 have a chance of 0.5 % at a third of 1 %"


@pytest.mark.parametrize("method", ["wasserstein", "ks", "psi"])
def test_every_method_keeps_its_promise_and_finds_a_shift(method: str) -> None:
    generator = np.random.default_rng(0)
    schema = numeric_schema(10)
    policy = DriftPolicy(numeric_method=method)

    def rows(count: int, shift: float = 0.0) -> pd.DataFrame:
        return pd.DataFrame(generator.normal(size=(count, 10)), columns=schema.names()).assign(
            x0=lambda frame: frame["x0"] + shift
        )

    def called(current: pd.DataFrame) -> bool:
        found = [
            distance(reference[name], current[name], "numeric", METHODS[method]) for name in schema.names()
        ]
        return any(score >= bounds[name] for name, score in zip(schema.names(), found, strict=True))

    alarms = 0
    for draw in range(5):
        reference = rows(3_000)
        bounds = calibrate_thresholds(reference, schema, rows=200, policy=policy, seed=draw)
        alarms += sum(called(rows(200)) for _ in range(20))
        assert called(rows(200, shift=0.6))
    assert alarms <= 2, "more than 2 of 100 have a chance of 0.5 % at a third of 1 %"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"numeric_method": "jensenshannon"}, "allowed are wasserstein, ks, psi"),
        ({"categorical_method": "ks"}, "allowed are jensenshannon, psi"),
        ({"methods": {"x0": "anderson"}}, "methods.x0 is 'anderson'; allowed are"),
    ],
)
def test_unknown_methods_are_refused_with_those_allowed(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        DriftPolicy(**settings)


def test_a_method_for_an_unknown_or_unfit_column_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="methods names y, which the champion does not know"):
        DriftPolicy(methods={"y": "ks"}).methods_of(numeric_schema(1))
    with pytest.raises(ConfigurationError, match=r"methods\.x0 is 'jensenshannon'"):
        DriftPolicy(methods={"x0": "jensenshannon"}).methods_of(numeric_schema(1))


def test_a_share_of_columns_can_be_asked_for() -> None:
    policy = DriftPolicy(drift_share=0.15)
    assert verdict(scores_with(drifted=2), policy=policy) is DriftStatus.STABLE
    assert verdict(scores_with(drifted=3), policy=policy) is DriftStatus.DRIFTED
