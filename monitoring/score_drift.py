"""Score drift: whether the champion's scores, and the alerts they make, are still what they were.

Nothing is closer to harm, and nothing of it needs labels. All three tests compare with the scores of rows
that the champion was not trained on.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.stats import betabinom

from monitoring.drift import DriftPolicy, calibrate_thresholds
from monitoring.evidently_drift import column_scores
from monitoring.frames import FloatArray
from monitoring.reference import ChampionReference
from monitoring.stream import values_since_change
from monitoring.verdicts import DriftStatus, DriftTest, ScoreSummary
from training.types import Column, FeatureSchema

SCORES = FeatureSchema(features=(Column(name="anomaly_score", kind="numeric"),))

QUANTILES = (0.5, 0.9, 0.99, 1.0)

ALERT_FACTOR = 1.5
"""Times the flood mark's target, up to which the number of alerts is of no concern, however certain."""

STRETCHES, LEAST_STRETCH = 16, 25
"""Stretches of rows that a window's scores are summed up in, and the least rows of each."""

BEGINNING = 64
"""Stretches of held-out rows that the stream of scores begins with."""

LEAST_SHIFT = 0.05
"""Of the mean rank: the change along the stream that matters."""


def summary(scores: FloatArray, reference: ChampionReference | None) -> ScoreSummary:
    """Return what is kept of a window's scores (rows,), in the order in which the rows came.

    Ranks are those in the reference of the window's season: a weekend is no change of the stream either.
    Without such a reference there are none.
    """
    quantiles = {f"{q:g}": float(np.quantile(scores, q)) for q in QUANTILES}
    if reference is None:
        return ScoreSummary(quantiles=quantiles)
    ranks = _stretches(_ranks(scores, reference.scores))
    return ScoreSummary(
        quantiles=quantiles,
        ranks=tuple(round(rank, 4) for rank in ranks),
        stretch=len(scores) / len(ranks),
    )


def score_drift(
    reference: ChampionReference, scores: FloatArray, policy: DriftPolicy, *, seed: int
) -> DriftTest:
    """Compare the distribution of a window's scores (rows,): Kolmogorov-Smirnov distance, calibrated."""
    ours = replace(policy, methods={}, numeric_method="ks")
    before, after = (pd.DataFrame({"anomaly_score": side}) for side in (reference.scores, scores))
    distance = column_scores(before, after, SCORES, ours.methods_of(SCORES), seed=seed)["anomaly_score"]
    bound = calibrate_thresholds(
        before, SCORES, rows=len(scores), policy=ours, alpha=policy.score_alpha, seed=seed
    )["anomaly_score"]
    if distance is None:
        return _unknown("scores", "there are no scores to compare")
    middles = [float(np.median(side)) for side in (reference.scores, scores)]
    return DriftTest(
        test="scores",
        status=DriftStatus.DRIFTED if distance >= bound else DriftStatus.STABLE,
        statistic=distance,
        bound=bound,
        reason=f"scores lie {distance:.3g} (threshold {bound:.3g}) from those of held-out rows; "
        f"their median went from {middles[0]:.3g} to {middles[1]:.3g}",
    )


def alert_count(reference: ChampionReference, scores: FloatArray, policy: DriftPolicy) -> DriftTest:
    """Hold the number of a window's alerts against what so many unchanged rows would bring.

    With a Jeffreys prior, alerts among new rows are beta-binomial given those among the held-out rows. More
    alerts may be more anomalies, which is what a detector is for: this verdict is told, and does not make
    a window drifted.
    """
    threshold, rows = reference.threshold, len(scores)
    known, alerts = (int((side > threshold.value).sum()) for side in (reference.scores, scores))
    usual = betabinom(rows, known + 0.5, len(reference.scores) - known + 0.5)
    bound = max(
        float(usual.isf(policy.score_alpha)), math.ceil(ALERT_FACTOR * threshold.target_alert_rate * rows)
    )
    if not (rows and math.isfinite(bound)):
        return _unknown("alerts", "there are no scores to count alerts in")
    return DriftTest(
        test="alerts",
        status=DriftStatus.DRIFTED if alerts > bound else DriftStatus.STABLE,
        statistic=float(alerts),
        bound=bound,
        reason=f"{alerts} alerts in {rows} rows; unchanged rows bring at most {bound:.0f}"
        f" (the budget is {threshold.target_alert_rate:.1%})",
    )


def stream_drift(
    reference: ChampionReference,
    windows: Sequence[ScoreSummary],
    policy: DriftPolicy,
    *,
    seed: int,
) -> DriftTest:
    """Look for a slow change along all windows that the champion has scored, which no single one shows.

    Args:
        reference: The champion's reference.
        windows: Their scores, oldest first, the newest last.
        policy: Supplies alpha.
        seed: Of the order in which the held-out rows are taken for the stream's beginning.
    """
    held_out = len(reference.scores)
    if not any(window.ranks for window in windows) or held_out < LEAST_STRETCH:
        return _unknown("stream", "no window has enough rows for the stream of scores")
    shuffled = np.random.default_rng(seed).permutation(reference.scores)
    beginning = _stretches(_ranks(shuffled, reference.scores), BEGINNING)
    told = [ScoreSummary(quantiles={}, ranks=beginning, stretch=held_out / len(beginning)), *windows]
    ranks = [rank for window in told for rank in window.ranks]
    # A mean of n ranks, brought to the spread of a single one: ADWIN's bound knows values of 0 to 1.
    spread = [0.5 + (rank - 0.5) * math.sqrt(window.stretch) for window in told for rank in window.ranks]
    same = values_since_change(spread, alpha=policy.score_alpha)
    shift = float(np.mean(ranks[-same:])) - 0.5 if same < len(ranks) else 0.0
    least = max(LEAST_SHIFT, 4 / math.sqrt(12 * held_out))  # its own mean rank is known no better
    return DriftTest(
        test="stream",
        status=DriftStatus.DRIFTED if abs(shift) >= least else DriftStatus.STABLE,
        statistic=abs(shift),
        bound=least,
        reason=f"over {len(windows)} windows of this champion the scores' mean rank has moved by {shift:+.3f}"
        f" (of concern from {least:.3f} on)",
    )


def _ranks(scores: FloatArray, known: FloatArray) -> FloatArray:
    """Return the share of `known` below each score, ties by half: uniform for scores of the same kind."""
    ordered = np.sort(known)
    below, up_to = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    ranks: FloatArray = (below + up_to) / (2 * len(ordered))
    return ranks


def _stretches(ranks: FloatArray, most: int = STRETCHES) -> tuple[float, ...]:
    count = min(most, max(1, len(ranks) // LEAST_STRETCH))
    return tuple(float(part.mean()) for part in np.array_split(ranks, count))


def _unknown(test: str, reason: str) -> DriftTest:
    return DriftTest(test=test, status=DriftStatus.INCONCLUSIVE, statistic=None, bound=None, reason=reason)  # type: ignore[arg-type] # one of the four
