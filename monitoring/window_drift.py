"""All tests of one window against the champion, and the one verdict that follows from them."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from monitoring.drift import DriftPolicy, calibrate_thresholds, drift_verdict
from monitoring.evidently_drift import column_scores
from monitoring.frames import FloatArray
from monitoring.joint_drift import joint_drift
from monitoring.reference import ChampionReference
from monitoring.score_drift import alert_count, score_drift, stream_drift
from monitoring.season import unmatched
from monitoring.verdicts import DriftStatus, DriftTest, DriftVerdict, ScoreSummary

TOLD_ONLY = ("alerts",)
"""Tests that do not make a window drifted: more alerts may simply be more anomalies."""

NEEDS_NO_ROWS = ("stream",)
"""Tests whose evidence is not in one window, so that a small one may be called drifted by them."""


def window_drift(  # noqa: PLR0913 - the window, what it is compared with, and how
    rows: pd.DataFrame,
    scores: FloatArray,
    reference: ChampionReference,
    stream: Sequence[ScoreSummary],
    policy: DriftPolicy,
    *,
    seed: int,
) -> DriftVerdict:
    """Run every test of a window.

    Args:
        rows: The window's clean rows (rows, columns).
        scores: The champion's scores of them (rows,).
        reference: The champion's reference.
        stream: Scores of the windows that this champion has scored, oldest first, this one the last.
        policy: The bounds.
        seed: Of all draws.
    """
    schema = reference.schema
    slow = stream_drift(reference, stream, policy, seed=seed)
    matched = reference.in_season(rows, policy.season, seed=seed)
    if matched is None:
        return overall(unmatched(policy.season), (slow,))
    distances = column_scores(matched.rows, rows, schema, policy.methods_of(schema), seed=seed)
    thresholds = calibrate_thresholds(matched.rows, schema, rows=len(rows), policy=policy, seed=seed)
    return overall(
        drift_verdict(distances, schema, thresholds, rows=len(rows), policy=policy),
        (
            joint_drift(matched, rows, policy, seed=seed),
            score_drift(matched, scores, policy, seed=seed),
            alert_count(matched, scores, policy),
            slow,
        ),
    )


def overall(columns: DriftVerdict, tests: Sequence[DriftTest]) -> DriftVerdict:
    """Combine the verdict on the columns with the other tests: any of them can make a window drifted.

    A window on which the columns' verdict is INCONCLUSIVE stays so unless the stream has moved; and one on
    which a test could not be computed is not STABLE.
    """
    deciding = [test for test in tests if test.test not in TOLD_ONLY]
    believed = [
        test
        for test in deciding
        if columns.status is not DriftStatus.INCONCLUSIVE or test.test in NEEDS_NO_ROWS
    ]
    drifted = [test for test in believed if test.status is DriftStatus.DRIFTED]
    unknown = [test for test in deciding if test.status is DriftStatus.INCONCLUSIVE]
    status = columns.status
    if drifted:
        status = DriftStatus.DRIFTED
    elif unknown and status is DriftStatus.STABLE:
        status = DriftStatus.INCONCLUSIVE
    told = [f"{test.test}: {test.reason}" for test in (*drifted, *unknown)]
    return replace(columns, status=status, reason="; ".join([columns.reason, *told]), tests=tuple(tests))
