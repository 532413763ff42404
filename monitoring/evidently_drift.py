"""The one module that knows Evidently: how far each column of a window is from the reference.

Importing it sets DO_NOT_TRACK, the environment variable by which Evidently's telemetry is switched off,
unless it is set already.
"""

import os
import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

from monitoring.distances import METHODS, ROW_CAP, capped_sample, comparable
from monitoring.frames import clean_frame
from training.types import FeatureSchema

os.environ.setdefault("DO_NOT_TRACK", "1")
with warnings.catch_warnings():
    # Evidently 0.7.23 touches deprecated names of NumPy and Litestar while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from evidently.legacy.calculations.stattests import StatTest, get_stattest, register_stattest
    from evidently.legacy.core import ColumnType


def column_scores(  # noqa: PLR0913 - two sides, what they are, and how they are compared
    reference: pd.DataFrame,
    current: pd.DataFrame,
    schema: FeatureSchema,
    methods: Mapping[str, str],
    *,
    seed: int = 0,
    row_cap: int = ROW_CAP,
) -> dict[str, float | None]:
    """Measure how far each feature of `current` is from `reference`, by the methods of `distances.METHODS`.

    Both sides are brought into the form of `distances.comparable` first.

    Args:
        reference: The champion's reference (rows, columns).
        current: The window (rows, columns).
        schema: The champion's schema.
        methods: The method of each feature.
        seed: Of the draw of rows.
        row_cap: Rows of either side that are compared.

    Returns:
        A finite distance per feature, larger being further; None where one side has no value.

    Raises:
        InvalidWindowError: Either side lacks a feature or holds one of another kind.
    """
    before = clean_frame(capped_sample(reference, seed=seed, cap=row_cap), schema)
    after = clean_frame(capped_sample(current, seed=seed, cap=row_cap), schema)
    scores: dict[str, float | None] = dict.fromkeys(schema.names())
    for column in schema.features:
        name, method = column.name, METHODS[methods[column.name]]
        if before[name].notna().any() and after[name].notna().any():
            old, new = comparable(before[name], after[name], column.kind, method)
            categorical = _as_category(schema, name, methods[name])
            scores[name] = _distance(old.dropna(), new.dropna(), method.evidently, categorical=categorical)
    return scores


def _distance(before: pd.Series, after: pd.Series, method: str, *, categorical: bool) -> float | None:
    """Call Evidently's function for a method; its reports call the same, and draw for ten times as long."""
    kind = ColumnType.Categorical if categorical else ColumnType.Numerical
    test = get_stattest(before, after, kind, method)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = float(test(before, after, kind, None).drift_score)
    return distance if np.isfinite(distance) else None


def _as_category(schema: FeatureSchema, name: str, method: str) -> bool:
    """Whether Evidently is to compare value by value: words, and bins where it would make its own."""
    return name in schema.names("categorical") or method == "psi"


def _ks_distance(
    reference: pd.Series, current: pd.Series, _: ColumnType, threshold: float
) -> tuple[float, bool]:
    """Kolmogorov-Smirnov distance, where Evidently's own "ks" gives the p-value."""
    distance = float(ks_2samp(reference, current, method="asymp").statistic)
    return distance, distance >= threshold


register_stattest(
    StatTest(
        name=METHODS["ks"].evidently,
        display_name="Kolmogorov-Smirnov distance",
        allowed_feature_types=[ColumnType.Numerical],
        default_threshold=0.1,
    ),
    _ks_distance,
)
