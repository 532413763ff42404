"""The measures equal scikit-learn's, and the bootstrap bounds what it says it bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
)

from training.evaluate import (
    Ranking,
    average_precision,
    paired_bootstrap,
    precision_recall,
    recall_at_budget,
    roc_auc,
    score_difference,
)


@st.composite
def rankings(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels with both classes, and scores out of few values, so that ties are common."""
    labels = draw(st.lists(st.booleans(), min_size=2, max_size=40).filter(lambda drawn: len(set(drawn)) == 2))
    values = st.sampled_from([-2.5, -1.0, 0.0, 0.25, 1.0, 3.0, 1e9])
    scores = draw(st.lists(values, min_size=len(labels), max_size=len(labels)))
    return np.array(labels), np.array(scores)


@settings(deadline=None)
@given(rankings())
def test_average_precision_and_roc_auc_equal_those_of_scikit_learn(
    ranking: tuple[np.ndarray, np.ndarray],
) -> None:
    labels, scores = ranking
    assert average_precision(labels, scores) == pytest.approx(average_precision_score(labels, scores))
    assert roc_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    precision, recall, _ = precision_recall_curve(labels, scores)
    # Theirs runs the other way, and ends in a point of no alerts.
    assert precision_recall(labels, scores)[0] == pytest.approx(recall[:-1][::-1])
    assert precision_recall(labels, scores)[1] == pytest.approx(precision[:-1][::-1])


@settings(deadline=None, max_examples=30)
@given(rankings(), st.floats(0.01, 1), st.integers(0, 99))
def test_recall_at_budget_is_the_mean_over_all_orders_of_tied_rows(
    ranking: tuple[np.ndarray, np.ndarray], share: float, seed: int
) -> None:
    labels, scores = ranking
    rows = max(1, int(share * len(labels)))
    generator = np.random.default_rng(seed)
    recalls = []
    for _ in range(800):
        order = np.lexsort((generator.random(len(scores)), -scores))
        recalls.append(labels[order[:rows]].sum() / labels.sum())
    expected = recall_at_budget(labels, scores, rows / len(labels))
    assert expected == pytest.approx(float(np.mean(recalls)), abs=0.1)


def test_recall_at_budget_counts_the_highest_rows() -> None:
    labels, scores = np.array([0, 0, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert recall_at_budget(labels, scores, 0.2) == pytest.approx(0.5)
    assert recall_at_budget(labels, scores, 0.4) == pytest.approx(0.5)
    assert recall_at_budget(labels, scores, 0.6) == pytest.approx(1)
    assert recall_at_budget(labels, np.zeros(5), 0.3) == pytest.approx(0.3)


@settings(deadline=None)
@given(rankings(), st.integers(0, 99))
def test_the_order_of_the_rows_changes_nothing(ranking: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    labels, scores = ranking
    order = np.random.default_rng(seed).permutation(len(labels))
    assert average_precision(labels[order], scores[order]) == average_precision(labels, scores)
    assert recall_at_budget(labels[order], scores[order], 0.3) == recall_at_budget(labels, scores, 0.3)
    first = paired_bootstrap(Ranking.roc_auc, labels, scores, -scores, repetitions=5)
    second = paired_bootstrap(Ranking.roc_auc, labels[order], scores[order], -scores[order], repetitions=5)
    assert first == second


@settings(deadline=None)
@given(rankings(), st.integers(0, 1000), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_score_that_is_not_finite_is_an_error(
    ranking: tuple[np.ndarray, np.ndarray], place: int, value: float
) -> None:
    labels, scores = ranking
    broken = scores.copy()
    broken[place % len(broken)] = value
    for measure in (average_precision, roc_auc):
        with pytest.raises(ValueError, match=r"1 of .* scores are NaN or infinite"):
            measure(labels, broken)
    with pytest.raises(ValueError, match="NaN"):
        recall_at_budget(labels, broken, 0.1)
    for pair in ((scores, broken), (broken, scores)):
        with pytest.raises(ValueError, match="NaN"):
            paired_bootstrap(Ranking.roc_auc, labels, *pair)


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [0, 1, 2], [0, 1, np.nan], [0, 1]])
def test_labels_that_are_not_both_classes_are_an_error(labels: list[float]) -> None:
    with pytest.raises(ValueError, match="labels"):
        average_precision(np.array(labels), np.arange(3.0))


@pytest.mark.parametrize("budget", [0, -0.1, 1.1, np.nan])
def test_a_budget_that_is_no_share_is_an_error(budget: float) -> None:
    with pytest.raises(ValueError, match="budget"):
        recall_at_budget(np.array([0, 1]), np.arange(2.0), budget)


def _pair(seed: int, first: float, second: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two scorers that share some of their noise and separate anomalies by `first` and `second`."""
    generator = np.random.default_rng(seed)
    labels = np.arange(360) >= 300
    shared, own, other = generator.normal(size=(3, 360))
    return labels, shared + own + first * labels, shared + other + second * labels


def test_the_bootstrap_tells_a_better_scorer_from_a_worse_one() -> None:
    labels, good, bad = _pair(0, 4, 1)
    better = paired_bootstrap(Ranking.average_precision, labels, good, bad, repetitions=200)
    assert 0 < better.lower < better.value < better.upper
    worse = paired_bootstrap(Ranking.average_precision, labels, bad, good, repetitions=200)
    assert (worse.value, worse.lower, worse.upper) == pytest.approx(
        (-better.value, -better.upper, -better.lower), abs=0.03
    )


def test_a_scorer_does_not_differ_from_itself() -> None:
    labels, scores, _ = _pair(0, 2, 2)
    same = paired_bootstrap(Ranking.average_precision, labels, scores, scores, repetitions=50)
    assert (same.value, same.lower, same.upper) == (0, 0, 0)


def test_the_bootstrap_depends_on_its_seed_alone() -> None:
    labels, first, second = _pair(0, 2, 1)
    drawn = [
        paired_bootstrap(Ranking.roc_auc, labels, first, second, seed=seed, repetitions=50)
        for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_a_bound_is_wrong_about_as_rarely_as_it_says() -> None:
    """Equal scorers, and chance against chance: the lower bound is above zero in about 5 % of cases."""
    wrong = {"equal": 0, "chance": 0}
    for seed in range(100):
        labels, first, second = _pair(seed, 2, 2)
        noise = np.random.default_rng(seed).normal(size=len(labels))
        for name, pair in (("equal", (first, second)), ("chance", (noise, np.zeros(len(labels))))):
            bounds = paired_bootstrap(Ranking.average_precision, labels, *pair, repetitions=100)
            wrong[name] += bounds.lower > 0
    # 12 of 100 or more happen once in 250 times at 5 %; quantiles without the correction give 17 to 20.
    assert max(wrong.values()) < 12, wrong


def test_score_difference_is_relative_for_large_scores_and_keeps_nan() -> None:
    stored = np.array([0.5, 1e6])
    assert score_difference(stored, stored + np.array([1e-6, 0.1])) == pytest.approx(1e-6)
    assert score_difference(stored, stored + np.array([0.25, 0])) == pytest.approx(0.25)
    assert np.isnan(score_difference(stored, np.array([0.5, np.nan])))
    for other in (np.empty(0), np.zeros(3)):
        with pytest.raises(ValueError, match="not the same rows"):
            score_difference(stored, other)
    with pytest.raises(ValueError, match="none to compare"):
        score_difference(np.empty(0), np.empty(0))
