"""Conformal p-values are those of their definition, and discoveries those of Benjamini and Hochberg."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control

from training.conformal import above_ties, discovery_mark, level_counts, p_values

ELEMENTS = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([0.0, 1.0, 2.0]))  # the latter make ties
CALIBRATION = arrays(np.float64, st.integers(1, 80), elements=ELEMENTS)
SCORES = arrays(np.float64, st.integers(0, 60), elements=ELEMENTS)
RATES = st.sampled_from([0.01, 0.1, 0.3, 0.7])


@given(CALIBRATION, SCORES)
def test_a_p_value_counts_the_calibration_scores_that_are_as_high(
    calibration: np.ndarray, scores: np.ndarray
) -> None:
    as_high = np.array([(above_ties(calibration) >= score).sum() for score in scores])
    np.testing.assert_array_equal(p_values(calibration, scores), (1 + as_high) / (calibration.size + 1))
    np.testing.assert_array_equal(
        level_counts(calibration, scores), np.bincount(as_high.astype(int), minlength=calibration.size + 1)
    )


@given(CALIBRATION, SCORES, RATES, st.integers(1, 7))
def test_alerts_of_a_file_in_batches_are_those_of_benjamini_and_hochberg(
    calibration: np.ndarray, scores: np.ndarray, rate: float, batches: int
) -> None:
    counts = sum(
        (level_counts(calibration, scores[batch::batches]) for batch in range(batches)),
        start=np.zeros(calibration.size + 1, dtype=np.int64),
    )
    alerts = scores > discovery_mark(calibration, counts, rate)
    p = p_values(calibration, scores)
    # From its sorted definition, in whole numbers: adjusted p-values round where they equal the rate.
    ranks, hundredths = np.arange(1, p.size + 1), round(100 * rate)
    levels = np.sort(np.rint(p * (calibration.size + 1)).astype(int))
    within = 100 * levels * p.size <= hundredths * ranks * (calibration.size + 1)
    largest = levels[within].max(initial=0)
    np.testing.assert_array_equal(alerts, np.rint(p * (calibration.size + 1)) <= largest)


def test_alerts_are_those_of_scipy() -> None:
    generator = np.random.default_rng(0)
    calibration = generator.normal(size=997)
    scores = np.concatenate([generator.normal(size=500), generator.normal(4, size=40)])
    for rate in (0.0512, 0.1037, 0.2011):  # none that an adjusted p-value equals
        mark = discovery_mark(calibration, level_counts(calibration, scores), rate)
        expected = false_discovery_control(p_values(calibration, scores)) <= rate
        assert 10 < expected.sum() < 100
        np.testing.assert_array_equal(scores > mark, expected)


def test_where_no_row_stands_out_there_is_no_alert() -> None:
    calibration = np.arange(100.0)
    assert discovery_mark(calibration, level_counts(calibration, np.arange(50.0)), 0.1) == math.inf
    assert discovery_mark(calibration, level_counts(calibration, np.empty(0)), 0.1) == math.inf


def test_rows_that_tie_with_calibration_scores_up_to_rounding_are_as_normal_as_these() -> None:
    calibration = np.full(100, 7.25)
    assert p_values(calibration, np.array([7.25 * (1 + 1e-6), 7.25, 7.3])).tolist() == [1.0, 1.0, 1 / 101]


def test_what_cannot_be_decided_on_is_refused() -> None:
    calibration, scores = np.arange(10.0), np.arange(5.0)
    with pytest.raises(ValueError, match="1 of 5 scores are not finite"):
        p_values(calibration, np.append(scores[:4], np.nan))
    with pytest.raises(ValueError, match="1 of 10 scores are not finite"):
        level_counts(np.append(calibration[:9], np.inf), scores)
    with pytest.raises(ValueError, match="no calibration score"):
        p_values(np.empty(0), scores)
    counts = level_counts(calibration, scores)
    for rate in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="false discovery rate is"):
            discovery_mark(calibration, counts, rate)
    with pytest.raises(ValueError, match="10 calibration scores need 11 counts"):
        discovery_mark(calibration, counts[:-1], 0.1)
