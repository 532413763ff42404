"""The flood mark keeps its promise on the calibration rows, and says no where it cannot."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from training.calibrators import CalibrationScores, ThresholdSpec
from training.conformal import TIE_MARGIN
from training.errors import TrainingFailedError
from training.threshold import calibrate
from training.types import Threshold

RATES = st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5])
SCORES = arrays(
    np.float64,
    st.integers(99, 300),
    elements=st.one_of(st.floats(-1e9, 1e9), st.sampled_from([0.0, 1.0, 2.0])),  # the latter make ties
)


def by_quantile(scores: np.ndarray, rate: float) -> Threshold:
    return calibrate(ThresholdSpec(target_alert_rate=rate), CalibrationScores(normal=scores))


@given(SCORES, RATES)
def test_the_alert_rate_on_the_calibration_rows_is_at_most_the_target(
    scores: np.ndarray, rate: float
) -> None:
    threshold = by_quantile(scores, rate)
    assert (scores > threshold.value).mean() <= rate
    assert threshold.calibration_rows == scores.size


@given(st.integers(99, 2000), RATES)
def test_without_ties_the_alert_rate_is_as_close_to_the_target_as_rows_allow(rows: int, rate: float) -> None:
    scores = np.arange(1.0, rows + 1)
    alerts = int((scores > by_quantile(scores, rate).value).sum())
    assert alerts <= rate * rows
    assert alerts > rate * rows - 2


@given(SCORES, RATES, st.randoms(use_true_random=False), st.integers(1, 7))
def test_neither_the_order_nor_the_number_of_ranks_matters(
    scores: np.ndarray, rate: float, random: "np.random.Generator", ranks: int
) -> None:
    shuffled = scores.copy()
    random.shuffle(shuffled)
    gathered = np.concatenate([shuffled[rank::ranks] for rank in range(ranks)])
    assert by_quantile(gathered, rate) == by_quantile(scores, rate)


def test_the_rank_is_the_one_of_the_conformal_formula() -> None:
    # n = 99, alpha = 0.1: k = ceil(100 * 0.9) = 90, which 0.9 in binary must not turn into 91.
    assert by_quantile(np.arange(1.0, 100), 0.1).value == pytest.approx(90.0, rel=2 * TIE_MARGIN)


@pytest.mark.parametrize("value", [7.25, -7.25, 0.0])
def test_rows_that_tie_with_the_mark_up_to_rounding_are_no_alerts(value: float) -> None:
    threshold = by_quantile(np.full(1000, value), 0.05)
    assert not value * (1 + 1e-6) > threshold.value
    assert not value * (1 - 1e-6) > threshold.value


@pytest.mark.parametrize(("rate", "needed"), [(0.05, 19), (0.01, 99), (0.5, 1), (0.001, 999)])
def test_too_few_rows_are_refused_with_the_number_needed(rate: float, needed: int) -> None:
    assert math.isfinite(by_quantile(np.arange(float(needed)), rate).value)
    with pytest.raises(TrainingFailedError, match=f"At least {needed} are needed"):
        by_quantile(np.arange(float(needed - 1)), rate)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_one_score_that_is_not_finite_stops_the_calibration(wrong: float) -> None:
    scores = np.arange(100.0)
    scores[3] = wrong
    with pytest.raises(TrainingFailedError, match="1 of 100 calibration scores are not finite"):
        by_quantile(scores, 0.05)
