"""The features of an Arrow batch as a frame, without one Python object per cell."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from monitoring.batch_column import NOT_UTF8
from monitoring.frames import clean_frame
from training.errors import InvalidWindowError
from training.types import Column, FeatureSchema


def feature_frame(batch: pa.RecordBatch, schema: FeatureSchema) -> pd.DataFrame:
    """Return the features in the schema's order, which score as those of `clean_frame` do.

    Where Arrow's type says what a column holds, numbers stay as they are and texts become a Categorical;
    every other column goes through `clean_frame`.

    Raises:
        InvalidWindowError: A feature is missing, repeated, or not of its kind.
    """
    features = {column.name: _feature(batch, column) for column in schema.features}
    return pd.DataFrame(features, index=pd.RangeIndex(batch.num_rows), copy=False)


def _feature(batch: pa.RecordBatch, column: Column) -> npt.NDArray[Any] | pd.Categorical:
    positions = batch.schema.get_all_field_indices(column.name)
    if len(positions) == 1:
        values = batch.column(positions[0])
        if column.kind == "numeric" and _is_number(values.type):
            return _numbers(values)
        if column.kind == "categorical" and _is_text(values.type):
            return _categories(values, column.name)
    frame = batch.select(positions).to_pandas(ignore_metadata=True)
    return clean_frame(frame, FeatureSchema(features=(column,)))[column.name].to_numpy()


def _is_number(kind: pa.DataType) -> bool:
    # Not decimals: Arrow rounds them to float64 in its own way.
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_boolean(values.type) and values.null_count:
        values = values.cast(pa.float64())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _categories(values: pa.Array, name: str) -> pd.Categorical:
    # A dictionary as it comes may repeat a text or hold a null, which a Categorical cannot.
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    encoded = plain.dictionary_encode()
    try:
        texts = encoded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise InvalidWindowError(f"the feature {name!r} is categorical but holds {NOT_UTF8}") from error
    codes = encoded.indices.fill_null(-1).to_numpy()
    return pd.Categorical.from_codes(codes, pd.Index(texts, dtype=object), validate=False)
