"""How well scores rank anomalies above normal rows, and how sure a difference between two scorers is.

Everything is counted on tie groups (the rows at each distinct score), so tied rows share the measure
they would have on average over all their orders, and a bootstrap sorts once instead of every time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
"""One-sided confidence of each bound of `paired_bootstrap`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """Rows counted at each distinct score, the highest score first: two arrays of shape (scores,)."""

    anomalies: np.ndarray
    normals: np.ndarray

    def average_precision(self) -> float:
        """Return the precision at each distinct score, weighted by the gain in recall there."""
        found = np.cumsum(self.anomalies)
        alerts = np.cumsum(self.anomalies + self.normals)
        # A bootstrap may leave the first groups empty: no alerts, and no anomalies to weigh them by.
        precision = found / np.maximum(alerts, 1)
        return float(np.sum(self.anomalies * precision) / found[-1])

    def recall_at_budget(self, budget: float) -> float:
        """Return the share of the anomalies among the highest `budget` share of the rows."""
        rows = self.anomalies + self.normals
        above = np.cumsum(rows) - rows
        taken = np.clip((budget * rows.sum() - above) / np.maximum(rows, 1), 0, 1)
        return float(np.sum(self.anomalies * taken) / self.anomalies.sum())

    def roc_auc(self) -> float:
        """Return the probability that an anomaly scores above a normal row, ties counting one half."""
        below = self.normals.sum() - np.cumsum(self.normals)
        wins = np.sum(self.anomalies * (below + self.normals / 2))
        return float(wins / (self.anomalies.sum() * self.normals.sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Candidate minus baseline, and the bounds that each hold with 95 % confidence on their side."""

    value: float
    lower: float
    upper: float


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    """Return the average precision, without interpolation; that of tied scores is the prevalence.

    Args:
        labels: (rows,) bool or 0/1, true for an anomaly; both must occur.
        scores: (rows,) finite, higher being more anomalous.

    Raises:
        ValueError: A score is NaN or infinite, or the labels are not 0 and 1.
    """
    return _ranking(labels, scores).average_precision()


def recall_at_budget(labels: np.ndarray, scores: np.ndarray, budget: float) -> float:
    """Return the share of the anomalies that the highest `budget` share of the rows holds.

    Where the budget ends inside a group of tied scores, the group counts with the share of it that
    fits (the expectation over all orders), so a constant score has exactly the recall `budget`.

    Raises:
        ValueError: As for `average_precision`, or `budget` is not above 0 and at most 1.
    """
    if not 0 < budget <= 1:
        raise ValueError(f"the budget is {budget}; it must be a share of the rows above 0 and at most 1")
    return _ranking(labels, scores).recall_at_budget(budget)


def roc_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the receiver operating characteristic; arguments as `average_precision`."""
    return _ranking(labels, scores).roc_auc()


def precision_recall(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return recall and precision at each distinct score, the highest first: two arrays (scores,).

    Arguments and errors as `average_precision`.
    """
    ranking = _ranking(labels, scores)
    found, alerts = np.cumsum(ranking.anomalies), np.cumsum(ranking.anomalies + ranking.normals)
    return found / found[-1], found / alerts


def score_difference(stored: np.ndarray, reproduced: np.ndarray) -> float:
    """Return the greatest |stored - reproduced| / max(1, |stored|) of any row; NaN where one is NaN.

    Relative for large scores, because float32 networks carry about seven digits whatever the size.

    Raises:
        ValueError: The two do not have the same rows, or there are none.
    """
    if stored.shape != reproduced.shape or not stored.size:
        shapes = f"stored scores {stored.shape}, reproduced scores {reproduced.shape}"
        raise ValueError(f"{shapes}: not the same rows, or none to compare")
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(stored - reproduced) / np.maximum(1, np.abs(stored))))


def paired_bootstrap(  # noqa: PLR0913 - two scorers on one set of labels, and how to resample
    metric: Callable[[Ranking], float],
    labels: np.ndarray,
    candidate: np.ndarray,
    baseline: np.ndarray,
    *,
    seed: int = 0,
    repetitions: int = 1000,
) -> Difference:
    """Bound the difference of a metric between two scorers of the same rows.

    Each resample draws as many anomalies and as many normal rows as there are, and both scorers see
    the same draw. The bounds are quantiles of the resampled differences, moved by their mean offset
    from the observed one: resampling duplicates anomalies, which flatters the average precision of a
    weak scorer. (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 10 and 13.)
    Rows are ordered before drawing, so the result does not depend on the order they come in.

    Args:
        metric: For example `Ranking.average_precision`.
        labels: (rows,) bool or 0/1, true for an anomaly; both must occur.
        candidate: (rows,) finite scores.
        baseline: (rows,) finite scores of the same rows; all equal for a baseline of chance.
        seed: Of the resampling.
        repetitions: Resamples; each costs time linear in the rows.

    Raises:
        ValueError: As for `average_precision`.
    """
    anomalous, candidate = _checked(labels, candidate)
    _, baseline = _checked(labels, baseline)
    order = np.lexsort((baseline, candidate, anomalous))
    normals = int(np.sum(~anomalous))
    strata = (normals, len(order) - normals)
    ranks = [_dense_ranks(scores[order]) for scores in (candidate, baseline)]

    def difference(weights: np.ndarray) -> float:
        first, second = (metric(_counted(rank, weights, normals)) for rank in ranks)
        return first - second

    observed = difference(np.ones(len(order)))
    generator = np.random.default_rng(seed)
    resampled = np.empty(repetitions)
    for repetition in range(repetitions):
        draws = [np.bincount(generator.integers(rows, size=rows), minlength=rows) for rows in strata]
        resampled[repetition] = difference(np.concatenate(draws))
    lower, upper = np.quantile(resampled, (1 - CONFIDENCE, CONFIDENCE)) - (resampled.mean() - observed)
    return Difference(value=observed, lower=float(lower), upper=float(upper))


def _ranking(labels: np.ndarray, scores: np.ndarray) -> Ranking:
    anomalous, scores = _checked(labels, scores)
    order = np.argsort(anomalous, kind="stable")
    return _counted(_dense_ranks(scores[order]), np.ones(len(order)), int(np.sum(~anomalous)))


def _checked(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    if labels.ndim != 1 or labels.shape != scores.shape:
        raise ValueError(f"labels {labels.shape} and scores {scores.shape} must both have shape (rows,)")
    if not np.isfinite(scores).all():
        raise ValueError(f"{np.sum(~np.isfinite(scores))} of {scores.size} scores are NaN or infinite")
    found = set(np.unique(labels).tolist())
    if found != {0, 1}:
        raise ValueError(f"labels hold {sorted(found)[:5]}; they must hold both 0 (normal) and 1 (anomaly)")
    return labels.astype(bool), scores


def _dense_ranks(scores: np.ndarray) -> np.ndarray:
    """Number the distinct scores from 0, the highest first: (rows,) integers."""
    return np.unique(-scores, return_inverse=True)[1]


def _counted(ranks: np.ndarray, weights: np.ndarray, normals: int) -> Ranking:
    """Count weighted rows at each rank; the first `normals` rows are the normal ones."""
    groups = int(ranks.max()) + 1
    return Ranking(
        anomalies=np.bincount(ranks[normals:], weights[normals:], minlength=groups),
        normals=np.bincount(ranks[:normals], weights[:normals], minlength=groups),
    )
