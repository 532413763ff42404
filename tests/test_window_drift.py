"""All tests of one window: joint drift, score drift, the stream, season, and the verdict over them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.drift import DriftPolicy
from monitoring.joint_drift import joint_drift
from monitoring.reference import ChampionReference
from monitoring.score_drift import score_drift, stream_drift, summary
from monitoring.season import Season, matched_places
from monitoring.verdicts import DriftStatus, DriftTest, DriftVerdict, ScoreSummary
from monitoring.window_drift import overall, window_drift
from training.preprocessing import fit_preprocessing
from training.types import Column, FeatureSchema, Threshold

STABLE, DRIFTED, INCONCLUSIVE = DriftStatus.STABLE, DriftStatus.DRIFTED, DriftStatus.INCONCLUSIVE
SCHEMA = FeatureSchema(
    features=(
        Column(name="x", kind="numeric"),
        Column(name="y", kind="numeric"),
        Column(name="z", kind="numeric"),
        Column(name="mode", kind="categorical"),
    ),
    time_column="at",
)
POLICY = DriftPolicy()
Score = Callable[[pd.DataFrame], np.ndarray]


def drawn(rows: int, seed: int, *, correlation: float = 0.9, start: str = "2026-01-05") -> pd.DataFrame:
    """Draw x and y that hang together, z that does not, and a category, one row a minute."""
    generator = np.random.default_rng(seed)
    x, noise, z = generator.normal(size=(3, rows))
    return pd.DataFrame(
        {
            "x": x,
            "y": correlation * x + np.sqrt(1 - correlation**2) * noise,
            "z": z,
            "mode": generator.choice(["a", "b"], size=rows),
            "at": pd.date_range(start, periods=rows, freq="min", tz="UTC"),
        }
    )


def by_z(rows: pd.DataFrame) -> np.ndarray:
    """Score a row by how far z lies from zero."""
    return rows["z"].abs().to_numpy()


def reference(
    rows: pd.DataFrame, held_out: pd.DataFrame, score: Score = by_z, schema: FeatureSchema = SCHEMA
) -> ChampionReference:
    """Make a reference whose champion scores by `score` and marks three in a hundred rows."""
    scores = score(held_out)
    return ChampionReference(
        schema=schema,
        rows=rows,
        held_out=held_out,
        scores=scores,
        threshold=Threshold(
            value=float(np.quantile(scores, 0.97)),
            method="quantile",
            target_alert_rate=0.03,
            calibration_rows=len(scores),
        ),
        encode=fit_preprocessing(schema, rows, lambda array: array).transform,
    )


KNOWN = reference(drawn(4_000, 1), drawn(2_000, 2))


def verdict(
    window: pd.DataFrame,
    known: ChampionReference = KNOWN,
    *,
    scores: np.ndarray | None = None,
    policy: DriftPolicy = POLICY,
) -> DriftVerdict:
    """Run every test of a window that is the first of its champion."""
    scores = by_z(window) if scores is None else scores
    return window_drift(window, scores, known, [summary(scores, known)], policy, seed=0)


def statuses(found: DriftVerdict) -> dict[str, DriftStatus]:
    """The status of each test by its name."""
    return {test.test: test.status for test in found.tests}


def test_an_unchanged_window_passes_every_test() -> None:
    found = verdict(drawn(1_000, 3))
    assert found.status is STABLE
    assert statuses(found) == dict.fromkeys(("joint", "scores", "alerts", "stream"), STABLE)


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.6])
def test_a_changed_correlation_is_joint_drift_where_no_column_moves(correlation: float) -> None:
    found = verdict(drawn(1_000, 4, correlation=correlation))
    assert found.drifted_columns == []
    assert statuses(found)["joint"] is DRIFTED
    assert found.status is DRIFTED
    assert "joint: " in found.reason


@pytest.mark.parametrize("rows", [300, 1_000])
def test_joint_drift_keeps_still_on_unchanged_windows(rows: int) -> None:
    alarms = sum(statuses(verdict(drawn(rows, seed)))["joint"] is DRIFTED for seed in range(10, 18))
    assert alarms == 0


def test_more_features_than_rows_of_the_reference_make_no_joint_drift() -> None:
    generator = np.random.default_rng(0)
    names = [f"c{place}" for place in range(400)]
    schema = FeatureSchema(features=tuple(Column(name=name, kind="numeric") for name in names))
    rows, held_out, window = (
        pd.DataFrame(generator.normal(size=(300, 400)), columns=names) for _ in range(3)
    )
    known = reference(rows, held_out, lambda frame: frame["c0"].abs().to_numpy(), schema)
    assert joint_drift(known, window, POLICY, seed=0).status is STABLE


def test_columns_of_which_none_varies_are_not_called_jointly_stable() -> None:
    schema = FeatureSchema(features=(Column(name="c", kind="numeric"),))
    rows = pd.DataFrame({"c": np.full(500, 7.0)})
    known = reference(rows, rows, lambda frame: np.linspace(0, 1, len(frame)), schema)
    found = verdict(rows, known, scores=np.linspace(0, 1, 500))
    assert statuses(found)["joint"] is INCONCLUSIVE
    assert found.status is INCONCLUSIVE


def test_scores_that_moved_are_drift_though_no_column_did() -> None:
    window = drawn(1_000, 5)
    found = verdict(window, scores=by_z(window) + 0.5)
    assert found.drifted_columns == []
    assert statuses(found)["scores"] is DRIFTED
    assert found.status is DRIFTED


def test_alerts_beyond_the_budget_are_told_and_are_no_drift() -> None:
    window = drawn(1_000, 6)
    scores = by_z(window).copy()
    scores[::14] = 9.0
    found = verdict(window, scores=scores)
    assert statuses(found) | {"alerts": STABLE} == dict.fromkeys(statuses(found), STABLE)
    told = next(test for test in found.tests if test.test == "alerts")
    assert told.status is DRIFTED
    assert told.bound is not None
    assert told.statistic == (scores > KNOWN.threshold.value).sum() > told.bound
    assert found.status is STABLE


@pytest.mark.parametrize("rows", [1, 5, 199])
def test_a_window_of_few_rows_is_inconclusive_whatever_its_scores_say(rows: int) -> None:
    window = drawn(rows, 7)
    found = verdict(window, scores=by_z(window) + 5)
    assert found.status is INCONCLUSIVE


def stream(shifts: list[float], *, rows: int = 300, seed: int = 0) -> list[DriftStatus]:
    """What the stream says after each of several windows whose scores are moved by `shifts`."""
    told: list[ScoreSummary] = []
    found = []
    for place, shift in enumerate(shifts):
        scores = by_z(drawn(rows, 1_000 * (seed + 1) + place)) + shift
        told.append(summary(scores, KNOWN))
        found.append(stream_drift(KNOWN, told, POLICY, seed=0).status)
    return found


SLIGHTLY = 0.1
"""Moves the scores' mean rank by 0.06, which windows of 200 rows cannot show."""


def test_a_slow_drift_of_the_scores_is_seen_by_the_stream_and_by_no_single_window() -> None:
    found = stream([0.0] * 4 + [SLIGHTLY] * 30, rows=200)
    assert found[:4] == [STABLE] * 4
    assert found[-1] is DRIFTED
    windows = [by_z(drawn(200, 1_004 + place)) + SLIGHTLY for place in range(16)]
    assert [score_drift(KNOWN, scores, POLICY, seed=0).status for scores in windows] == [STABLE] * 16


def test_the_stream_can_call_a_small_window_drifted() -> None:
    assert stream([0.0] * 4 + [0.3] * 20, rows=60)[-1] is DRIFTED


def test_the_stream_recovers() -> None:
    found = stream([0.3] * 6 + [0.0] * 30)
    assert found[5] is DRIFTED
    assert found[-1] is STABLE


@pytest.mark.parametrize("rows", [50, 300, 2_000])
def test_the_stream_keeps_still_while_nothing_changes(rows: int) -> None:
    assert [stream([0.0] * 60, rows=rows, seed=seed).count(DRIFTED) for seed in range(1, 6)] == [0] * 5


def weekly(seed: int, start: str, days: int, *, weekend: float = 2.0) -> pd.DataFrame:
    """Rows every ten minutes; on Saturdays and Sundays x lies higher."""
    rows = drawn(144 * days, seed)
    rows["at"] = pd.date_range(start, periods=len(rows), freq="10min", tz="UTC")
    rows["x"] += weekend * (rows["at"].dt.weekday >= 5)
    return rows


MONDAY, SATURDAY = "2026-01-05", "2026-02-07"
WEEKLY = reference(weekly(1, MONDAY, 28), weekly(2, MONDAY, 28))
BY_WEEKDAY = replace(POLICY, season="weekday")


def test_a_weekend_is_no_drift_against_weekends() -> None:
    weekend = weekly(3, SATURDAY, 2)
    assert verdict(weekend, WEEKLY).status is DRIFTED
    assert verdict(weekend, WEEKLY, policy=BY_WEEKDAY).status is STABLE


def test_a_weekend_that_looks_like_workdays_is_drift_against_weekends() -> None:
    weekend = weekly(4, SATURDAY, 2, weekend=0.0)
    assert verdict(weekend, WEEKLY, policy=BY_WEEKDAY).status is DRIFTED


@pytest.mark.parametrize(("season", "status"), [("none", DRIFTED), ("weekday", STABLE)])
def test_weekends_are_no_change_of_the_stream_either(season: Season, status: DriftStatus) -> None:
    def by_x(rows: pd.DataFrame) -> np.ndarray:
        return rows["x"].to_numpy()

    known = reference(weekly(1, MONDAY, 28), weekly(2, MONDAY, 28), by_x)
    windows = [weekly(seed, SATURDAY, 2) for seed in range(3, 15)]
    told = [summary(by_x(rows), known.in_season(rows, season, seed=0)) for rows in windows]
    assert stream_drift(known, told, POLICY, seed=0).status is status


def test_a_window_of_an_unknown_season_adds_nothing_to_the_stream() -> None:
    workdays = reference(weekly(1, MONDAY, 5), weekly(2, MONDAY, 5))
    rows = weekly(3, SATURDAY, 2)
    told = summary(by_z(rows), workdays.in_season(rows, "weekday", seed=0))
    assert (told.ranks, set(told.quantiles)) == ((), {"0.5", "0.9", "0.99", "1"})
    assert stream_drift(workdays, [told], POLICY, seed=0).status is INCONCLUSIVE


def test_hours_are_matched_likewise() -> None:
    nights = [weekly(seed, MONDAY, 28, weekend=0.0) for seed in range(3)]
    for rows in nights:
        rows["x"] += 2.0 * (rows["at"].dt.hour < 6)
    known = reference(nights[0], nights[1])
    night = nights[2][nights[2]["at"].dt.hour < 6].head(400).reset_index(drop=True)
    assert verdict(night, known).status is DRIFTED
    assert verdict(night, known, policy=replace(POLICY, season="hour")).status is STABLE


@pytest.mark.parametrize("missing", ["season", "times of the reference", "times of the window"])
def test_without_a_reference_of_its_season_a_window_is_inconclusive(missing: str) -> None:
    known, window = WEEKLY, weekly(5, SATURDAY, 2)
    if missing == "season":
        known = reference(weekly(1, MONDAY, 5), weekly(2, MONDAY, 5))
    elif missing == "times of the reference":
        known = replace(known, rows=known.rows.drop(columns="at"))
    else:
        window = window.drop(columns="at")
    found = verdict(window, known, policy=BY_WEEKDAY)
    assert found.status is INCONCLUSIVE
    assert "weekday" in found.reason


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=200),
    st.lists(st.integers(0, 6), min_size=1, max_size=60),
    st.integers(0, 3),
)
def test_a_matched_reference_has_the_mix_of_the_window(
    days: list[int], window_days: list[int], seed: int
) -> None:
    times, window = (
        pd.DataFrame({"at": pd.Timestamp("2026-01-05", tz="UTC") + pd.to_timedelta(side, unit="D")})
        for side in (days, window_days)
    )
    places = matched_places(times, window, "at", "weekday", seed=seed)
    assert len(set(places.tolist())) == len(places)
    if not set(window_days) <= set(days):
        assert len(places) == 0
    matched = [days[place] for place in places]
    for day in set(matched):
        share = window_days.count(day) / len(window_days)
        assert abs(matched.count(day) - share * len(matched)) <= 7


def told(name: str, status: DriftStatus) -> DriftTest:
    """A test that came out like this."""
    return DriftTest(test=name, status=status, statistic=None, bound=None, reason="so")  # type: ignore[arg-type] # one of the names


def test_the_overall_verdict_fails_closed() -> None:
    for columns, joint, scores, alerts, slow in product(DriftStatus, repeat=5):
        tests = [told("joint", joint), told("scores", scores), told("alerts", alerts), told("stream", slow)]
        found = overall(DriftVerdict(status=columns, share=None, reason="columns"), tests).status
        if found is STABLE:
            assert {columns, joint, scores, slow} == {STABLE}
        if found is DRIFTED:
            assert DRIFTED in {columns, joint, scores, slow}
            assert slow is DRIFTED or columns is not INCONCLUSIVE
        if columns is INCONCLUSIVE and slow is not DRIFTED:
            assert found is INCONCLUSIVE
