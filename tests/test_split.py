"""The split is complete and disjoint; the contamination guard fails in neither direction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.errors import TrainingFailedError
from training.split import split_rows, trusted_rows


@settings(deadline=None)
@given(st.integers(5, 2000), st.integers(0, 2**32))
def test_every_row_is_in_exactly_one_part(rows: int, seed: int) -> None:
    parts = split_rows(rows, seed)
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_the_parts_have_their_shares_and_depend_on_the_seed_alone() -> None:
    first, again, other = split_rows(1000, 1), split_rows(1000, 1), split_rows(1000, 2)
    assert [len(part) for part in first] == [500, 300, 200]
    assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert [len(part) for part in split_rows(1000, 1, (0.5, 0.4, 0.1))] == [500, 400, 100]


@settings(deadline=None)
@given(st.integers(0, 100), st.tuples(*[st.floats(0.05, 1)] * 3))
def test_too_few_rows_are_refused_with_the_number_that_is_enough(
    rows: int, weights: tuple[float, float, float]
) -> None:
    fractions = (weights[0] / sum(weights), weights[1] / sum(weights), weights[2] / sum(weights))
    try:
        parts = split_rows(rows, 0, fractions)
    except TrainingFailedError as error:
        needed = int(error.hint.split()[2])
        assert needed > rows
        assert all(len(part) for part in split_rows(needed, 0, fractions))
        with pytest.raises(TrainingFailedError):
            split_rows(needed - 1, 0, fractions)
    else:
        assert all(len(part) for part in parts)


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1), (np.nan, 0.5, 0.5)]
)
def test_fractions_that_are_no_shares_are_an_error(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="positive and sum to one"):
        split_rows(100, 0, fractions)


def test_anomalies_are_kept_from_training_while_alerts_are_rare() -> None:
    """The first failure mode: a model trained on anomalies learns to call them normal."""
    scores = np.concatenate((np.zeros(970), np.full(30, 9.0)))
    trusted = trusted_rows(scores, 5.0, target_alert_rate=0.01, factor=3)
    assert np.array_equal(trusted.mask, scores < 5)
    assert trusted.reason == (
        "the champion alerts on 30 of 1000 rows (3.00%), no more than 3.00%: "
        "its alerts are left out of training"
    )


def test_the_new_normal_is_not_kept_from_training_after_a_drift() -> None:
    """The second failure mode: a drifted champion alerts on everything new, so nothing new is learnt."""
    scores = np.concatenate((np.zeros(600), np.full(400, 9.0)))
    trusted = trusted_rows(scores, 5.0, target_alert_rate=0.01, factor=3)
    assert trusted.mask.all()
    assert trusted.reason == (
        "the champion alerts on 400 of 1000 rows (40.00%), more than 3.00%: "
        "that is drift, not anomalies, and no row is left out"
    )


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=50), st.sampled_from([0.1, 0.3, 0.9]))
def test_either_the_alerts_are_left_out_or_nothing_and_something_always_trains(
    values: list[float], limit: float
) -> None:
    scores = np.array(values)
    mask = trusted_rows(scores, 1.0, target_alert_rate=limit / 2, factor=2).mask
    assert mask.any()
    assert np.array_equal(mask, scores <= 1) if np.mean(scores > 1) <= limit else mask.all()


@pytest.mark.parametrize(
    ("scores", "threshold"),
    [([1.0, np.nan], 0.5), ([1.0, np.inf], 0.5), ([], 0.5), ([1.0], np.nan), ([1.0], np.inf)],
)
def test_unknown_scores_are_an_error(scores: list[float], threshold: float) -> None:
    with pytest.raises(ValueError, match="alerts cannot be told"):
        trusted_rows(np.array(scores), threshold, target_alert_rate=0.01, factor=3)


@pytest.mark.parametrize("factor", [0, -1, 100, np.nan])
def test_a_limit_that_no_alert_rate_could_exceed_is_an_error(factor: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        trusted_rows(np.zeros(10), 1.0, target_alert_rate=0.01, factor=factor)
