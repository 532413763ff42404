"""Joint drift: whether the columns still hang together as they did, even if none of them moved by itself.

Rows are taken as the champion's network reads them and turned onto principal components of the reference;
each component is then a column like any other, with a calibrated threshold. A changed correlation moves
mass between components, most visibly along those in which the reference hardly varies (Kuncheva and
Faithfull, PCA feature extraction for change detection in multidimensional unlabeled data, IEEE TNNLS 25,
2014). So the least and the most varying components are compared.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.distances import capped_sample
from monitoring.drift import DriftPolicy, calibrate_thresholds
from monitoring.evidently_drift import column_scores
from monitoring.frames import FloatArray
from monitoring.reference import ChampionReference
from monitoring.verdicts import DriftStatus, DriftTest
from training.types import Column, FeatureSchema

COMPONENTS = 16
"""Compared components: so many of the most varying, and half as many more of the least varying."""

ROWS = 10_000
"""Rows of either side that are turned."""

WIDEST = 1_024
"""Features that are turned, those that vary most: the work grows with the third power of their number."""

LEAST_VARIANCE = 1e-6
"""Of the features' mean variance. Below is rounding noise only: one-hot features sum to a constant."""

DECIMALS = 5
"""Components are rounded to these: equal rows must not differ by float32's noise."""


def joint_drift(
    reference: ChampionReference, window: pd.DataFrame, policy: DriftPolicy, *, seed: int
) -> DriftTest:
    """Compare a window with the reference along principal components, all of them against one alpha.

    The components are fitted on every other row of the reference and compared with the rest: the rows
    that a component was fitted on vary less along it than fresh ones.

    Args:
        reference: The champion's reference.
        window: Rows of the window (rows, columns).
        policy: Supplies alpha and the least distance that matters.
        seed: Of all draws.

    Returns:
        The component that lies furthest beyond (or least below) its threshold; INCONCLUSIVE when there
        is no component to compare.
    """
    known = reference.encode(capped_sample(reference.rows, seed=seed, cap=ROWS)).astype(np.float64)
    current = reference.encode(capped_sample(window, seed=seed, cap=ROWS)).astype(np.float64)
    centre, turned = _components(known[::2])
    if not turned.shape[1]:
        return DriftTest(
            test="joint",
            status=DriftStatus.INCONCLUSIVE,
            statistic=None,
            bound=None,
            reason="no combination of the columns varies in the reference",
        )
    schema = FeatureSchema(
        features=tuple(
            Column(name=f"component {place + 1}", kind="numeric") for place in range(turned.shape[1])
        )
    )
    before, after = (
        pd.DataFrame(np.round((side - centre) @ turned, DECIMALS), columns=schema.names())
        for side in (known[1::2], current)
    )
    ours = DriftPolicy(alpha=policy.alpha, numeric_method="ks", numeric_threshold=policy.numeric_threshold)
    scores = column_scores(before, after, schema, ours.methods_of(schema), seed=seed)
    thresholds = calibrate_thresholds(
        before, schema, rows=min(len(window), ROWS), policy=ours, alpha=policy.test_alpha, seed=seed
    )
    return _furthest({name: score for name, score in scores.items() if score is not None}, thresholds)


def _furthest(scores: dict[str, float], thresholds: dict[str, float]) -> DriftTest:
    drifted = [name for name in scores if scores[name] >= thresholds[name]]
    furthest = max(scores, key=lambda name: scores[name] / thresholds[name])
    return DriftTest(
        test="joint",
        status=DriftStatus.DRIFTED if drifted else DriftStatus.STABLE,
        statistic=scores[furthest],
        bound=thresholds[furthest],
        reason=f"{len(drifted)} of {len(scores)} principal components reach their thresholds; furthest "
        f"{furthest} at {scores[furthest]:.3g} ({thresholds[furthest]:.3g})",
    )


def _components(features: FloatArray) -> tuple[FloatArray, npt.NDArray[np.float64]]:
    """Return the mean (width,) and the chosen components (width, at most 1.5 COMPONENTS), unit variance."""
    spread = features.var(axis=0)
    kept = np.sort(np.argsort(-spread, kind="stable")[:WIDEST])
    centre = features.mean(axis=0)
    variances, directions = np.linalg.eigh(
        np.cov(features[:, kept], rowvar=False, ddof=0).reshape(len(kept), -1)
    )
    varying = np.flatnonzero(variances > LEAST_VARIANCE * max(float(spread.mean()), np.finfo(float).tiny))[
        ::-1
    ]
    chosen = np.unique(np.concatenate([varying[:COMPONENTS], varying[-(COMPONENTS // 2) :]]))[::-1]
    turned = np.zeros((features.shape[1], len(chosen)))
    turned[kept] = directions[:, chosen] / np.sqrt(variances[chosen])
    return centre, turned
