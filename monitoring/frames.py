"""What the columns of a frame hold, and a frame's known columns in one type per kind."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.errors import InvalidWindowError
from training.types import ColumnKind, FeatureSchema

FloatArray = npt.NDArray[np.float64]

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


def clean_frame(frame: pd.DataFrame, schema: FeatureSchema) -> pd.DataFrame:
    """Return the columns of the contract in the schema's order and in one type per kind.

    Numeric features become float64 with NaN for what is missing or infinite, categorical ones objects
    with None; the time and label columns follow as they are, where present. `frame` is left unchanged.

    Raises:
        InvalidWindowError: A feature is missing, repeated, or not of its kind.
    """
    clean: dict[str, pd.Series | FloatArray] = {}
    for column in schema.features:
        count = column_count(frame, column.name)
        if count != 1:
            raise InvalidWindowError(
                f"the feature {column.name!r} stands in the frame {count} times, not once"
            )
        values = frame[column.name]
        kind = value_kind(values)
        if kind not in {column.kind, "empty"}:
            raise InvalidWindowError(
                f"the feature {column.name!r} is {column.kind} but holds {described(values)}"
            )
        if column.kind == "numeric":
            numbers = np.full(len(values), np.nan) if kind == "empty" else float_values(values)
            clean[column.name] = np.where(np.isfinite(numbers), numbers, np.nan)
        else:
            texts = values.astype(object)
            clean[column.name] = texts.where(texts.notna(), None)
    for extra in (schema.time_column, schema.label_column):
        if extra is not None and column_count(frame, extra) == 1:
            clean[extra] = frame[extra]
    if schema.entity_column is not None and column_count(frame, schema.entity_column) == 1:
        clean[schema.entity_column] = as_text(frame[schema.entity_column])
    return pd.DataFrame(clean, index=frame.index, copy=False)


def as_text(values: pd.Series) -> pd.Series:
    """Return values of any kind as objects of str, and None where there is none."""
    texts = values.astype(object).map(str, na_action="ignore").astype(object)
    return texts.where(texts.notna(), None)


def utc_times(values: pd.Series) -> pd.Series:
    """Return ISO 8601 texts and timestamps as times in UTC, NaT where they are none."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    return pd.to_datetime(values, format="ISO8601", errors="coerce", utc=True)


def usable_labels(frame: pd.DataFrame, schema: FeatureSchema) -> FloatArray | None:
    """Return the labels as float64 (rows,): 0, 1 or NaN for unknown; None when there are none to use."""
    if schema.label_column is None or column_count(frame, schema.label_column) != 1:
        return None
    values = frame[schema.label_column]
    if value_kind(values) != "numeric":
        return None
    try:
        labels = float_values(values)
    except InvalidWindowError:
        return None
    return labels if bool(np.isin(labels[~np.isnan(labels)], (0.0, 1.0)).all()) else None


def column_count(frame: pd.DataFrame, name: str | None) -> int:
    """Return how often a name stands among the columns."""
    return int((frame.columns == name).sum())
