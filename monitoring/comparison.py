"""One window as another version than the champion would have judged it."""

import numpy as np
import pandas as pd

from monitoring.drift import DriftPolicy
from monitoring.frames import FloatArray
from monitoring.records import Comparison
from monitoring.reference import ChampionReference
from monitoring.score_drift import alert_count, score_drift
from monitoring.verdicts import DriftStatus


def comparison(  # noqa: PLR0913 - the window, both versions' views of it, and how they are judged
    version: str,
    rows: pd.DataFrame,
    reference: ChampionReference,
    scores: FloatArray,
    *,
    champion_alerts: np.ndarray | None,
    policy: DriftPolicy,
    seed: int,
) -> Comparison:
    """Hold a version's scores against its own reference, and its alerts against the champion's.

    Args:
        version: The other version.
        rows: The window's clean rows (rows, columns).
        reference: The other version's reference.
        scores: Its scores of the rows (rows,).
        champion_alerts: Which rows the champion alerts on, bool (rows,); None where it could not score.
        policy: The bounds of the drift tests.
        seed: Of all draws.
    """
    if not np.isfinite(scores).all():
        broken = int((~np.isfinite(scores)).sum())
        return Comparison(version=version, error=f"{broken} of {len(scores)} scores are not finite")
    matched = reference.in_season(rows, policy.season, seed=seed)
    if matched is None:
        return Comparison(version=version, error=f"its reference has no rows of the window's {policy.season}")
    alerts = scores > reference.threshold.value
    tests = (alert_count(matched, scores, policy), score_drift(matched, scores, policy, seed=seed))
    return Comparison(
        version=version,
        alerts=int(alerts.sum()),
        disagreements=None if champion_alerts is None else int((alerts != champion_alerts).sum()),
        drifted=tuple(test.test for test in tests if test.status is not DriftStatus.STABLE),
    )
