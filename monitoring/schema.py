"""From the first window to the feature schema: which columns a model learns from, and why the others do not.

The schema is inferred once and stored with the champion; from then on it is the contract that
`monitoring.quality` holds every window to.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.errors import InvalidWindowError
from training.types import Column, ColumnKind, FeatureSchema

IDENTIFIER_ROWS = 100
"""From this many rows on, a text column that is mostly distinct values is taken for an identifier."""

IDENTIFIER_DISTINCT_SHARE = 0.5

ValueKind = ColumnKind | Literal["empty", "timestamps", "unsupported"]

_KIND_OF_INFERRED: dict[str, ValueKind] = {
    "string": "categorical",
    "integer": "numeric",
    "floating": "numeric",
    "mixed-integer-float": "numeric",
    "decimal": "numeric",
    "boolean": "numeric",
    "empty": "empty",
    "datetime64": "timestamps",
    "datetime": "timestamps",
    "date": "timestamps",
}
"""pandas' names for what a column of Python objects holds; every other name is unsupported."""


def value_kind(values: pd.Series) -> ValueKind:
    """Tell what a column holds, by its values where its dtype says only "object".

    A column without any value is "empty" whatever its dtype; booleans count as numbers. The values
    of a pandas Categorical are its categories.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        return "empty" if values.isna().all() else value_kind(values.cat.categories.to_series())
    if values.isna().all():
        return "empty"
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return "timestamps"
    if pd.api.types.is_complex_dtype(values.dtype):
        return "unsupported"
    if pd.api.types.is_numeric_dtype(values.dtype):
        return "numeric"
    return _KIND_OF_INFERRED.get(pd.api.types.infer_dtype(values, skipna=True), "unsupported")


def float_values(values: pd.Series) -> npt.NDArray[np.float64]:
    """Convert a numeric column of any dtype to float64 (rows,), with NaN for every kind of missing value.

    Raises:
        InvalidWindowError: A value is no float64, such as an integer of 400 digits.
    """
    try:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidWindowError(
            f"the column {values.name!r} holds numbers that float64 cannot: {error}"
        ) from error


def described(values: pd.Series) -> str:
    """Name what a column holds, with an example: of the rarer type where texts and others are mixed."""
    present = values.dropna().astype(object)
    if not len(present):
        return "no value"
    is_text = present.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool)
    mixed = bool(is_text.any()) and not bool(is_text.all())
    rarer = present[is_text if is_text.mean() < 0.5 else ~is_text] if mixed else present  # noqa: PLR2004
    name = {"numeric": "numbers", "categorical": "text", "timestamps": "timestamps"}.get(
        value_kind(values), "mixed values"
    )
    return f"{name} such as {repr(rarer.iloc[0])[:60]}"


def infer_schema(
    frame: pd.DataFrame, *, time_column: str | None, label_column: str | None, ignore: Sequence[str]
) -> tuple[FeatureSchema, list[str]]:
    """Infer the feature schema from the first window.

    Args:
        frame: The raw rows of the window (rows, columns).
        time_column: The event time, never a feature.
        label_column: The label that detectors are judged by, never a feature.
        ignore: Columns that are never features; they may be absent.

    Returns:
        The schema, features in the order of `frame`, and one warning for each column left out and
        for a missing label column. Columns left out are among the schema's ignored ones.

    Raises:
        InvalidWindowError: No rows, a repeated or unnamed column, no time column, an empty column,
            or no feature at all.
    """
    _require_usable(frame, time_column)
    warnings = []
    if label_column is not None and label_column not in frame.columns:
        warnings.append(
            f"the label column {label_column!r} is not in the first window: no detector is judged by labels"
        )
    features: list[Column] = []
    ignored = list(dict.fromkeys(ignore))
    for name in frame.columns:
        if name in {time_column, label_column, *ignore}:
            continue
        kind = value_kind(frame[name])
        if kind == "empty":
            raise InvalidWindowError(
                f"the column {name!r} has no value in the {len(frame)} rows of the first window",
                hint="Name it in ignore_columns, or repair the window, and run the same command again.",
            )
        objection = _objection(frame[name], kind)
        if objection is not None:
            warnings.append(f"the column {name!r} is not used as a feature: it {objection}")
            ignored.append(name)
        elif kind == "numeric" or kind == "categorical":  # noqa: PLR1714 - mypy narrows by == only
            features.append(Column(name=name, kind=kind))
    if not features:
        raise InvalidWindowError(
            f"no column of the first window can be a feature; its columns are {list(frame.columns)}",
            hint="At least one numeric or text column is needed beside the time, label and ignored columns.",
        )
    schema = FeatureSchema(
        features=tuple(features),
        time_column=time_column,
        label_column=label_column,
        ignored=tuple(ignored),
    )
    return schema, warnings


def _require_usable(frame: pd.DataFrame, time_column: str | None) -> None:
    if frame.empty:
        raise InvalidWindowError(
            f"the first window has {len(frame)} rows and {len(frame.columns)} columns",
            hint="A schema needs at least one row of one column.",
        )
    unnamed = [name for name in frame.columns if not isinstance(name, str) or not name]
    if unnamed:
        raise InvalidWindowError(
            f"the first window has columns without a text name: {unnamed[:5]}", hint="Write a header row."
        )
    repeated = sorted(set(frame.columns[frame.columns.duplicated()]))
    if repeated:
        raise InvalidWindowError(
            f"the first window names these columns more than once: {repeated[:5]}",
            hint="Each column needs a name of its own.",
        )
    if time_column is not None and time_column not in frame.columns:
        raise InvalidWindowError(
            f"the first window has no time column {time_column!r}; its columns are {list(frame.columns)}",
            hint="Correct time_column, or repair the window, and run the same command again.",
        )


def _objection(values: pd.Series, kind: ValueKind) -> str | None:
    """Say why a column that has values is no feature; None when it is one."""
    if kind == "timestamps":
        return "holds timestamps"
    if kind == "unsupported":
        return f"holds neither numbers nor text alone, but {described(values)}"
    if kind == "categorical" and len(values) >= IDENTIFIER_ROWS:
        distinct = int(values.nunique())
        if distinct > IDENTIFIER_DISTINCT_SHARE * len(values):
            return f"looks like an identifier, with {distinct} distinct texts in {len(values)} rows"
    return None
