"""The one module that knows Evidently: how far each column of a window is from the reference.

Importing it sets DO_NOT_TRACK, the environment variable by which Evidently's telemetry is switched off,
unless it is set already.
"""

import os
import warnings

import numpy as np
import pandas as pd

from monitoring.distances import METHODS, ROW_CAP, capped_sample, constant_score, without_far_tails
from monitoring.frames import clean_frame
from training.types import FeatureSchema

os.environ.setdefault("DO_NOT_TRACK", "1")
with warnings.catch_warnings():
    # Evidently 0.7.23 touches deprecated names of NumPy and Litestar while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from evidently import DataDefinition, Dataset, Report
    from evidently.metrics import ValueDrift

FURTHEST = 1e12
"""Standardised values are cut here: NumPy cannot draw a histogram around a constant beyond 1e14."""

SIGNIFICANT_BITS = 40
"""Standardised values keep this precision (1e-12): NumPy cannot split a range of a few floats into bins."""


def column_scores(
    reference: pd.DataFrame,
    current: pd.DataFrame,
    schema: FeatureSchema,
    *,
    seed: int = 0,
    row_cap: int = ROW_CAP,
) -> dict[str, float | None]:
    """Measure how far each feature of `current` is from `reference`, by the methods of `distances.METHODS`.

    Numeric features are standardised by the reference first, because Evidently floors the deviation it
    norms by at 0.001 and so cannot see a column of small values move. A feature that is constant in the
    reference has no deviation and is scored by `distances.constant_score`.

    Args:
        reference: The champion's reference (rows, columns).
        current: The window (rows, columns).
        schema: The champion's schema.
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
    compared: dict[str, str] = {}
    for column in schema.features:
        old, new = before[column.name].dropna(), after[column.name].dropna()
        if old.empty or new.empty:
            continue
        if column.kind == "categorical":
            compared[column.name] = METHODS["categorical"]
        elif old.min() == old.max():
            differing = float((new != old.iloc[0]).mean())
            scores[column.name] = float(constant_score(differing, reference_rows=len(old)))
        else:
            compared[column.name] = METHODS["numeric"]
            old = without_far_tails(before[column.name], before[column.name])
            new = without_far_tails(after[column.name], before[column.name])
            before[column.name], after[column.name] = _standardised(old, new)
    if compared:
        scores.update(_report(before, after, schema, compared))
    return scores


def _standardised(reference: pd.Series, current: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Express both columns in the reference's deviations from its mean."""
    size = float(reference.abs().max())  # dividing by it first keeps squares of huge values finite
    centre, deviation = float((reference / size).mean()), float((reference / size).std(ddof=0))
    with np.errstate(over="ignore"):
        old, new = ((values / size - centre) / deviation for values in (reference, current))
    return _drawable(old), _drawable(new)


def _drawable(values: pd.Series) -> pd.Series:
    """Spare Evidently the values whose histogram, which it draws unasked, would end the whole report."""
    mantissa, exponent = np.frexp(values.clip(-FURTHEST, FURTHEST))
    rounded: pd.Series = np.ldexp(
        np.round(mantissa * 2.0**SIGNIFICANT_BITS) / 2.0**SIGNIFICANT_BITS, exponent
    )
    return rounded


def _report(
    reference: pd.DataFrame, current: pd.DataFrame, schema: FeatureSchema, methods: dict[str, str]
) -> dict[str, float | None]:
    """Run one report over columns that have values on both sides."""
    names = list(methods)
    definition = DataDefinition(
        numerical_columns=[name for name in schema.names("numeric") if name in methods],
        categorical_columns=[name for name in schema.names("categorical") if name in methods],
    )
    # Verdicts are ours; the threshold only keeps Evidently from looking for one.
    metrics = [ValueDrift(column=name, method=method, threshold=0.1) for name, method in methods.items()]
    with np.errstate(divide="ignore", invalid="ignore"):
        snapshot = Report(metrics, include_tests=False).run(
            Dataset.from_pandas(current[names], data_definition=definition),
            Dataset.from_pandas(reference[names], data_definition=definition),
        )
    values = {item["config"]["column"]: float(item["value"]) for item in snapshot.dict()["metrics"]}
    return {name: values[name] if np.isfinite(values[name]) else None for name in names}
