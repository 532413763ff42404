"""The one module that knows Evidently: how far each column of a window is from the reference.

Importing it sets DO_NOT_TRACK, the environment variable by which Evidently's telemetry is switched off,
unless it is set already.
"""

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

from monitoring.distances import METHODS, ROW_CAP, capped_sample, comparable
from monitoring.frames import clean_frame
from monitoring.verdicts import ColumnDrift
from training.types import FeatureSchema

os.environ.setdefault("DO_NOT_TRACK", "1")
with warnings.catch_warnings():
    # Evidently 0.7.23 touches deprecated names of NumPy and Litestar while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from evidently import DataDefinition, Dataset, Report
    from evidently.core.report import Snapshot
    from evidently.legacy.calculations.stattests import StatTest, get_stattest, register_stattest
    from evidently.legacy.core import ColumnType
    from evidently.metrics import ValueDrift

FURTHEST = 1e12
"""Standardised values are cut here: NumPy cannot draw a histogram around a constant beyond 1e14."""

LONGEST_NAME = 60

SIGNIFICANT_BITS = 40
"""Standardised values keep this precision (1e-12): NumPy cannot split a range of a few floats into bins."""


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
    scores: dict[str, float | None] = dict.fromkeys(schema.names())
    before, after, compared = _prepared(reference, current, schema, methods, seed=seed, row_cap=row_cap)
    for name, method in compared.items():
        categorical = _as_category(schema, name, methods[name])
        scores[name] = _distance(before[name].dropna(), after[name].dropna(), method, categorical=categorical)
    return scores


def report_page(  # noqa: PLR0913 - two sides, what they are, and how they are compared
    reference: pd.DataFrame,
    current: pd.DataFrame,
    schema: FeatureSchema,
    columns: Sequence[ColumnDrift],
    *,
    seed: int = 0,
    row_cap: int = ROW_CAP,
) -> str | None:
    """Return Evidently's HTML page (3.7 MB) of some columns, as `column_scores` compared them.

    Args:
        reference: The champion's reference (rows, columns).
        current: The window (rows, columns).
        schema: The champion's schema.
        columns: Those to be shown, with the method and threshold of each.
        seed: Of the draw of rows.
        row_cap: Rows of either side that are compared.

    Returns:
        The page, which needs no network; None where none of the columns has values on both sides.

    Raises:
        InvalidWindowError: Either side lacks a feature or holds one of another kind.
    """
    chosen = {drift.column: drift for drift in columns}
    features = tuple(column for column in schema.features if column.name in chosen)
    schema = replace(schema, features=features)
    methods = {name: drift.method for name, drift in chosen.items()}
    before, after, compared = _prepared(reference, current, schema, methods, seed=seed, row_cap=row_cap)
    if not compared:
        return None
    names = _harmless([name for name in chosen if name in compared])
    categorical = {name for name in compared if _as_category(schema, name, methods[name])}
    for name in set(schema.names("numeric")) & set(compared):
        before[name], after[name] = _drawable(before[name]), _drawable(after[name])
    for name in set(schema.names("categorical")) & set(compared):
        words = _harmless(pd.concat([before[name], after[name]]).dropna().unique().tolist())
        before[name], after[name] = before[name].map(words), after[name].map(words)
    metrics = [
        ValueDrift(column=shown, method=compared[name], threshold=chosen[name].threshold)
        for name, shown in names.items()
    ]
    before, after = (side[list(names)].rename(columns=names) for side in (before, after))
    snapshot = _snapshot(before, after, metrics, {names[name] for name in categorical})
    return str(snapshot.get_html_str(as_iframe=False))


def _harmless(texts: Sequence[str]) -> dict[str, str]:
    """Return names for Evidently's page, which escapes nothing, and into whose script they are pasted."""
    shown: dict[str, str] = {}
    for place, text in enumerate(texts):
        plain = re.sub(r"[^\w .,:;()+*/=%-]", "_", text.strip("\0"))[:LONGEST_NAME]
        shown[text] = f"{plain} ({place})" if plain in shown.values() else plain
    return shown


def _prepared(  # noqa: PLR0913 - as its callers
    reference: pd.DataFrame,
    current: pd.DataFrame,
    schema: FeatureSchema,
    methods: Mapping[str, str],
    *,
    seed: int,
    row_cap: int,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, str]]:
    """Return both sides as Evidently is to see them, and its methods of columns with values in both."""
    before = clean_frame(capped_sample(reference, seed=seed, cap=row_cap), schema)
    after = clean_frame(capped_sample(current, seed=seed, cap=row_cap), schema)
    compared: dict[str, str] = {}
    for column in schema.features:
        name, method = column.name, METHODS[methods[column.name]]
        if before[name].notna().any() and after[name].notna().any():
            old, new = comparable(before[name], after[name], column.kind, method)
            before[name], after[name] = old, new
            compared[name] = method.evidently
    return before, after, compared


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


def _drawable(values: pd.Series) -> pd.Series:
    """Spare Evidently the numbers whose histogram, which it draws unasked, would end the whole report."""
    mantissa, exponent = np.frexp(values.clip(-FURTHEST, FURTHEST))
    rounded: pd.Series = np.ldexp(
        np.round(mantissa * 2.0**SIGNIFICANT_BITS) / 2.0**SIGNIFICANT_BITS, exponent
    )
    return rounded


def _snapshot(
    reference: pd.DataFrame, current: pd.DataFrame, metrics: list[ValueDrift], categorical: set[str]
) -> Snapshot:
    """Run a report over all columns of two frames."""
    definition = DataDefinition(
        numerical_columns=[name for name in reference.columns if name not in categorical],
        categorical_columns=[name for name in reference.columns if name in categorical],
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return Report(metrics, include_tests=False).run(
            Dataset.from_pandas(current, data_definition=definition),
            Dataset.from_pandas(reference, data_definition=definition),
        )


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
