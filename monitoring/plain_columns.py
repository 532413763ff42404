"""Lists and Arrow arrays as features, without a data frame and without one Python object per cell.

Only what is plainly of its kind is taken here. Everything else goes the way of every window, through
`clean_frame`, which then either knows better or says what is wrong; so that both ways mean the same.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from monitoring.batch_column import NOT_UTF8
from monitoring.frames import FloatArray, clean_frame
from training.encoding import Features, Levels
from training.errors import InvalidWindowError
from training.scorer import Scorer

PlainColumn: TypeAlias = "list[Any] | pa.Array"
"""The values of a column, None for what is missing."""

NOTHING = type(None)


def encode_batch(batch: pa.RecordBatch, scorer: Scorer) -> Features:
    """Encode the features of a batch, which may hold other columns too; returns (rows, width).

    Raises:
        InvalidWindowError: A feature is missing, repeated, or not of its kind.
    """
    return encode_columns(batch.num_rows, _columns(batch, scorer.schema.names(), "feature"), scorer)


def context_of_batch(batch: pa.RecordBatch, scorer: Scorer) -> pd.DataFrame:
    """Return the columns of a batch that tell which rows follow each other.

    Raises:
        InvalidWindowError: One is missing or repeated.
    """
    return context_frame(_columns(batch, scorer.context, "column"), scorer)


def context_frame(columns: Mapping[str, PlainColumn], scorer: Scorer) -> pd.DataFrame:
    """Return those of `columns` that tell which rows follow each other; none where every row stands alone."""
    return pd.DataFrame({name: _series(columns[name]) for name in scorer.context})


def _columns(batch: pa.RecordBatch, names: list[str], what: str) -> dict[str, pa.Array]:
    for name in names:
        if (count := len(batch.schema.get_all_field_indices(name))) != 1:
            told = f"stands in the rows {count} times, not once" if count else "is missing in the rows"
            raise InvalidWindowError(f"the {what} {name!r} {told}")
    return {name: batch.column(name) for name in names}


def encode_columns(rows: int, columns: Mapping[str, PlainColumn], scorer: Scorer) -> Features:
    """Encode `columns`, which hold every feature once and `rows` values each; returns (rows, width).

    Raises:
        InvalidWindowError: A feature is not of its kind.
    """
    numbers = {name: plain_numbers(columns[name]) for name in scorer.schema.names("numeric")}
    levels = {name: plain_levels(name, columns[name]) for name in scorer.schema.names("categorical")}
    known_numbers = {name: values for name, values in numbers.items() if values is not None}
    known_levels = {name: values for name, values in levels.items() if values is not None}
    if len(known_numbers) == len(numbers) and len(known_levels) == len(levels):
        return scorer.preprocessing.encoder.encode(rows, known_numbers.__getitem__, known_levels.__getitem__)
    frame = pd.DataFrame({name: _series(columns[name]) for name in scorer.schema.names()})
    return scorer.preprocessing.transform(clean_frame(frame, scorer.schema))


def plain_numbers(values: PlainColumn) -> FloatArray | None:
    """Return float64 (rows,) with NaN for what is missing; None where this is no plain column of numbers."""
    if isinstance(values, list):
        types = set(map(type, values))
        if not (types <= {int, float, NOTHING} or types <= {bool, NOTHING}):
            return None
        try:
            numbers = np.array(values, dtype=np.float64)
        except OverflowError:  # an integer beyond float64
            return None
        return None if np.isinf(numbers).any() else numbers
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def plain_levels(name: str, values: PlainColumn) -> Levels | None:
    """Return the texts as codes and levels; None where this is no plain column of texts.

    Raises:
        InvalidWindowError: A text is not UTF-8.
    """
    if isinstance(values, list):
        if not set(map(type, values)) <= {str, NOTHING}:
            return None
        positions: dict[str | None, int] = {}
        codes = [positions.setdefault(value, len(positions)) for value in values]
        return np.array(codes, dtype=np.intp), list(positions)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    coded = values.dictionary_encode()
    try:
        texts: list[str | None] = coded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise InvalidWindowError(f"the feature {name!r} is categorical but holds {NOT_UTF8}") from error
    codes = coded.indices.cast(pa.int64()).fill_null(len(texts))
    return codes.to_numpy(zero_copy_only=False).astype(np.intp), [*texts, None]


def _series(values: PlainColumn) -> pd.Series:
    return pd.Series(values, dtype=object) if isinstance(values, list) else values.to_pandas()
