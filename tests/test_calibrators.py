"""Each calibrator does what its name says on made-up scores, and says no where it cannot."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, expon, genpareto

from infra.settings import load_settings
from monitoring.event_times import rows_per_day
from training.calibrators import CALIBRATORS, MIN_ANOMALIES, CalibrationScores, ThresholdSpec
from training.conformal import CONFIDENCE, above_ties
from training.errors import ConfigurationError, TrainingFailedError
from training.threshold import calibrate
from training.types import Threshold

RATES = st.sampled_from([0.01, 0.03, 0.1, 0.25])
ELEMENTS = st.one_of(st.floats(-1e9, 1e9, width=32), st.sampled_from([0.0, 1.0, 2.0]))  # the latter make ties


def spec_of(method: str, **given: Any) -> ThresholdSpec:  # noqa: ANN401 - fields of several types
    needed: dict[str, Any] = {"alerts_per_day": 30.0} if method == "alert_budget" else {}
    return ThresholdSpec(method=method, **(needed | given))


def f_of(normal: np.ndarray, anomalous: np.ndarray, mark: float, beta: float) -> float:
    found, false = int((anomalous > mark).sum()), int((normal > mark).sum())
    return (1 + beta**2) * found / (beta**2 * anomalous.size + found + false)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_neither_the_order_nor_the_unit_of_the_scores_matters(method: str) -> None:
    generator = np.random.default_rng(0)
    normal, anomalous = generator.pareto(3, 2000), 5 + generator.pareto(3, 100)
    spec = spec_of(method, target_alert_rate=0.01)
    found = calibrate(spec, CalibrationScores(normal=normal, anomalous=anomalous, rows_per_day=1000.0))
    assert found.note == ""
    assert (found.method, found.calibration_rows) == (method, 2000)
    turned = CalibrationScores(normal=normal[::-1], anomalous=anomalous[::-1], rows_per_day=1000.0)
    assert calibrate(spec, turned) == found
    larger = CalibrationScores(normal=1000 * normal, anomalous=1000 * anomalous, rows_per_day=1000.0)
    assert calibrate(spec, larger).value == pytest.approx(1000 * found.value, rel=1e-4)


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_one_normal_score_that_is_not_finite_stops_every_calibration(method: str, wrong: float) -> None:
    normal = np.append(np.arange(1000.0), wrong)
    scores = CalibrationScores(normal=normal, anomalous=np.arange(1000.0), rows_per_day=1e4)
    with pytest.raises(TrainingFailedError, match="1 of 1001 calibration scores are not finite"):
        calibrate(spec_of(method), scores)


@given(arrays(np.float64, st.integers(250, 500), elements=ELEMENTS), RATES)
def test_a_conformal_mark_keeps_the_target_with_its_probability(scores: np.ndarray, rate: float) -> None:
    mark = calibrate(spec_of("conformal", target_alert_rate=rate), CalibrationScores(normal=scores)).value
    rank = int(np.flatnonzero(above_ties(np.sort(scores)) == mark)[-1]) + 1
    # Fresh rows are above the k-th smallest at a rate of at most alpha where at least n + 1 - k of n uniform
    # variables are below alpha.
    assert binom.sf(scores.size - rank, scores.size, rate) >= CONFIDENCE
    assert mark >= calibrate(ThresholdSpec(target_alert_rate=rate), CalibrationScores(normal=scores)).value


def test_the_conformal_rank_is_as_low_as_its_probability_allows() -> None:
    for rows, rate in ((76, 0.03), (300, 0.03), (1000, 0.01), (5000, 0.1)):
        scores = CalibrationScores(normal=np.arange(1.0, rows + 1))
        rank = round(calibrate(spec_of("conformal", target_alert_rate=rate), scores).value / (1 + 1e-5))
        assert binom.sf(rows - rank, rows, rate) >= CONFIDENCE > binom.sf(rows - rank + 1, rows, rate)


def test_too_few_rows_for_a_conformal_mark_are_refused_with_the_number_needed() -> None:
    spec = spec_of("conformal", target_alert_rate=0.03)
    assert calibrate(spec, CalibrationScores(normal=np.arange(76.0))).value > 74
    with pytest.raises(TrainingFailedError, match="At least 76 are needed"):
        calibrate(spec, CalibrationScores(normal=np.arange(75.0)))
    with pytest.raises(TrainingFailedError, match="At least 76 are needed"):
        calibrate(spec, CalibrationScores(normal=np.empty(0)))


@given(
    arrays(np.float64, st.integers(1, 60), elements=ELEMENTS),
    arrays(np.float64, st.integers(MIN_ANOMALIES, 60), elements=ELEMENTS),
    st.sampled_from([0.25, 0.5, 1.0, 2.0]),
)
def test_no_other_mark_has_a_higher_f_beta_on_the_calibration_rows(
    normal: np.ndarray, anomalous: np.ndarray, beta: float
) -> None:
    normal, anomalous = np.round(normal, 1), np.round(anomalous, 1)  # apart or equal, up to the tie margin
    every = np.unique(np.concatenate([normal, anomalous]))
    apart = every[:-1][every[1:] > above_ties(every[:-1])]
    best = max((f_of(normal, anomalous, mark, beta) for mark in above_ties(apart)), default=0.0)
    try:
        found = calibrate(spec_of("f_beta", beta=beta), CalibrationScores(normal=normal, anomalous=anomalous))
    except TrainingFailedError as error:
        assert "has the highest F-beta" in error.message  # noqa: PT017 - which marks are refused is its own test
        return
    assert f_of(normal, anomalous, found.value, beta) == pytest.approx(best)
    assert found.target_alert_rate == ((normal > found.value).sum() + 1) / (normal.size + 2)
    assert (normal > found.value).mean() <= 0.5


def test_a_larger_beta_finds_more_at_more_false_alerts() -> None:
    generator = np.random.default_rng(0)
    scores = CalibrationScores(normal=generator.normal(size=3000), anomalous=generator.normal(2, size=200))
    marks = [calibrate(spec_of("f_beta", beta=beta), scores) for beta in (0.25, 1.0, 4.0)]
    assert marks[0].value > marks[1].value > marks[2].value
    assert marks[0].target_alert_rate < marks[1].target_alert_rate < marks[2].target_alert_rate


def test_anomalies_that_stand_apart_are_parted_in_the_middle() -> None:
    scores = CalibrationScores(normal=np.linspace(0, 10, 98), anomalous=np.linspace(20, 30, 40))
    found = calibrate(spec_of("f_beta"), scores)
    assert found.value == pytest.approx(15)
    assert found.target_alert_rate == pytest.approx(1 / 100)  # none in 98, and so not none at all


@pytest.mark.parametrize(
    ("anomalous", "said"),
    [
        (np.arange(19.0) + 1000, "19 labelled anomalies beside 1000 normal rows are too few"),
        (np.empty(0), "0 labelled anomalies"),
        (np.append(np.arange(30.0), math.nan), "1 of 31 scores of labelled anomalies are not finite"),
        (np.full(5000, -1.0) + np.arange(5000) / 5000, "no mark with alerts on at most 50%"),
    ],
)
def test_f_beta_refuses_labels_that_it_cannot_be_calibrated_on(anomalous: np.ndarray, said: str) -> None:
    scores = CalibrationScores(normal=np.arange(1000.0), anomalous=anomalous)
    with pytest.raises(TrainingFailedError, match=said):
        calibrate(spec_of("f_beta"), scores)


def test_scores_that_are_all_alike_have_no_f_beta() -> None:
    scores = CalibrationScores(normal=np.full(100, 2.0), anomalous=np.full(100, 2.00001))
    with pytest.raises(TrainingFailedError, match="no mark"):
        calibrate(spec_of("f_beta"), scores)


@given(st.floats(1, 400), st.floats(500, 1e7))
def test_an_alert_budget_is_the_quantile_at_its_share_of_a_days_rows(alerts: float, rows: float) -> None:
    scores = CalibrationScores(normal=np.arange(200.0), rows_per_day=rows)
    spec = spec_of("alert_budget", alerts_per_day=alerts)
    try:
        expected = calibrate(ThresholdSpec(target_alert_rate=alerts / rows), scores)
    except TrainingFailedError:
        with pytest.raises(TrainingFailedError, match="are too few"):
            calibrate(spec, scores)
        return
    found = calibrate(spec, scores)
    assert (found.value, found.target_alert_rate) == (expected.value, alerts / rows)


@pytest.mark.parametrize(
    ("rows", "said"), [(None, "Name a time_column"), (30.0, "only 30 rows come in a day"), (7.5, "only 7.5")]
)
def test_a_budget_that_no_mark_can_keep_is_refused(rows: float | None, said: str) -> None:
    scores = CalibrationScores(normal=np.arange(1000.0), rows_per_day=rows)
    with pytest.raises(TrainingFailedError, match=said):
        calibrate(spec_of("alert_budget", alerts_per_day=30.0), scores)


@pytest.mark.parametrize("shape", [-0.2, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("target", [1e-2, 1e-3, 1e-4])
def test_peaks_find_the_mark_of_a_tail_that_is_pareto(shape: float, target: float) -> None:
    """Over 40 samples of 5000, 100 excesses each, whose fits err by some 10 % in shape and scale."""
    generator, tail = np.random.default_rng(1), genpareto(shape) if shape else expon()
    spec = spec_of("peaks_over_threshold", target_alert_rate=target)
    ratios = []
    for _ in range(40):
        sample = CalibrationScores(normal=tail.rvs(5000, random_state=generator))
        ratios.append(np.log(max(tail.sf(calibrate_soundly(spec, sample)), 1e-9) / target))
    most = {1e-2: 0.1, 1e-3: 0.3, 1e-4: 1.2}[target]  # of the median, as a logarithm
    assert abs(float(np.median(ratios))) < most


def calibrate_soundly(spec: ThresholdSpec, scores: CalibrationScores) -> float:
    found = calibrate(spec, scores)
    assert found.note == ""
    return found.value


@pytest.mark.parametrize(
    ("normal", "said"),
    [
        (np.arange(299.0), "299 rows are too few to have a tail; 300 are needed"),
        (np.append(np.zeros(990), np.ones(10)), "10 excesses over the initial level are too few"),
        (np.arange(1000.0), "the target is not beyond the initial level, which 3.00% of the rows exceed"),
        (np.append(np.arange(9700.0), 1e4 + 10.0 ** np.linspace(-9, 40, 300)), "the tail's shape"),
        (np.append(np.arange(9700.0), np.full(300, 1e4)), "0 excesses over the initial level"),
    ],
)
def test_an_unsound_tail_falls_back_to_the_quantile_and_says_so(normal: np.ndarray, said: str) -> None:
    rate = 0.03 if "target" in said else 0.015
    scores = CalibrationScores(normal=normal)
    found = calibrate(spec_of("peaks_over_threshold", target_alert_rate=rate), scores)
    expected = calibrate(ThresholdSpec(target_alert_rate=rate), scores)
    assert found.note.startswith(f"quantile instead: {said}")
    assert (found.value, found.target_alert_rate) == (expected.value, rate)


def test_an_unsound_tail_at_a_target_with_too_few_rows_fails_with_both_reasons() -> None:
    scores = CalibrationScores(normal=np.append(np.zeros(990), np.ones(10)))
    with pytest.raises(TrainingFailedError, match=r"alert rate of 0\.0001; the tail: 10"):
        calibrate(spec_of("peaks_over_threshold", target_alert_rate=1e-4), scores)


@given(arrays(np.float64, st.integers(0, 400), elements=ELEMENTS), st.sampled_from([1e-4, 0.003, 0.02, 0.2]))
def test_peaks_end_in_a_finite_mark_or_an_error(scores: np.ndarray, rate: float) -> None:
    try:
        found = calibrate(
            spec_of("peaks_over_threshold", target_alert_rate=rate), CalibrationScores(normal=scores)
        )
    except TrainingFailedError:
        return
    assert math.isfinite(found.value)
    assert binom.sf((scores > found.value).sum() - 1, scores.size, rate) > 1e-4, "it alerts far too often"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "mean"}, "allowed are quantile, peaks_over_threshold, f_beta, conformal, alert_budget"),
        ({"target_alert_rate": 1.0}, "must lie between 0 and 1"),
        ({"target_alert_rate": math.nan}, "must lie between 0 and 1"),
        ({"method": "f_beta", "beta": 0.0}, "beta is 0.0; it must be positive"),
        ({"method": "f_beta", "beta": math.inf}, "beta is inf"),
        ({"method": "f_beta", "beta": math.nan}, "beta is nan"),
        ({"beta": 2.0}, "beta is for the method 'f_beta'; 'quantile' has no use for it"),
        ({"method": "alert_budget"}, "alerts_per_day is None and method 'alert_budget'"),
        ({"method": "conformal", "alerts_per_day": 3.0}, "alerts_per_day is 3.0 and method 'conformal'"),
        ({"method": "alert_budget", "alerts_per_day": 0.0}, "alerts_per_day is 0.0; it must be positive"),
        ({"method": "alert_budget", "alerts_per_day": math.nan}, "alerts_per_day is nan"),
        ({"betta": 2.0}, "unknown key betta; allowed are alerts_per_day, beta, method, target_alert_rate"),
    ],
)
def test_wrong_combinations_are_configuration_errors(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("'", ".")):
        load_settings(None, {"threshold": given})


def test_each_method_can_be_configured() -> None:
    columns = {"label_column": "label", "time_column": "at"}
    for method in CALIBRATORS:
        given = {"method": method} | ({"alerts_per_day": 30} if method == "alert_budget" else {})
        settings = load_settings(None, {"threshold": given, **columns})
        assert settings.threshold == spec_of(method)


@given(st.integers(2, 500), st.integers(1, 5), st.integers(1, 86_400))
def test_the_pace_of_evenly_spaced_rows_and_of_snapshots_is_exact(rows: int, each: int, seconds: int) -> None:
    instants = pd.date_range("2026-01-05", periods=rows, freq=f"{seconds}s", tz="UTC")
    times = pd.Series(instants.repeat(each)).sample(frac=1, random_state=0)
    assert rows_per_day([times]) == pytest.approx(each * 86_400 / seconds)
    later = times + pd.Timedelta(days=900)
    unknown = pd.Series([pd.NaT], dtype=times.dtype)
    assert rows_per_day([times, pd.concat([later, unknown])]) == pytest.approx(each * 86_400 / seconds)


def test_the_pace_of_times_without_a_span_is_unknown() -> None:
    at = pd.Series([pd.Timestamp("2026-01-05", tz="UTC")] * 3)
    assert rows_per_day([at, at + pd.Timedelta(days=1)]) is None
    assert rows_per_day([at[:0]]) is None
    assert rows_per_day([]) is None


def test_a_threshold_stored_before_there_were_notes_still_reads() -> None:
    stored = {"value": 1.0, "method": "quantile", "target_alert_rate": 0.05, "calibration_rows": 100}
    assert Threshold(**stored).note == ""  # type: ignore[arg-type] # of four types
