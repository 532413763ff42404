"""Other versions score a window beside the champion: the former one in a watch, a challenger in shadow."""

import numpy as np
import pandas as pd
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.installation import Installation
from monitoring.comparison import comparison
from monitoring.history import History
from monitoring.records import Comparison
from monitoring.watch import shadowed, watched
from training.errors import ConfigurationError, InvalidArtifactError, InvalidWindowError


@task(cache_policy=NO_CACHE)
def compare_versions(
    installation: Installation, history: History, rows: pd.DataFrame, scores: np.ndarray | None
) -> tuple[Comparison, ...]:
    """Return what every version under comparison makes of the window's clean rows.

    `scores` (rows,) are the champion's, None where it could not score. A version that is gone, damaged or
    cannot score is an outcome: the champion's window counts all the same.

    Raises:
        RetryableError: The registry does not answer.
    """
    settings = installation.settings
    versions = [watched(history, settings.promotion), shadowed(history)]
    alerts = None
    if scores is not None and history.champion is not None:
        alerts = scores > installation.champion(history.champion).scorer.threshold.value
    found = []
    for version in dict.fromkeys(version for version in versions if version is not None):
        try:
            other = installation.champion(version)
            other_scores = other.scorer.score(rows)
        except (ConfigurationError, InvalidArtifactError, InvalidWindowError) as error:
            found.append(Comparison(version=version, error=error.message))
            continue
        found.append(
            comparison(
                version,
                rows,
                other.reference,
                other_scores,
                champion_alerts=alerts,
                policy=settings.drift,
                seed=settings.training.seed,
            )
        )
        get_run_logger().info("beside the champion: %s", found[-1])
    return tuple(found)
