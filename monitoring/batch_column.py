"""One column of one batch of rows, from pandas or Arrow, as the profiler needs it."""

from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from monitoring.frames import ValueKind, described, value_kind
from monitoring.row_hashes import Words, number_words, text_words

Batch: TypeAlias = pd.DataFrame | pa.RecordBatch
Numbers = npt.NDArray[np.generic]

NOT_UTF8 = "text that is not UTF-8"


class BatchColumn:
    """One column of one batch: as numbers where its type says so, as a Series otherwise."""

    def __init__(self, batch: Batch, position: int) -> None:
        plain = _plain(batch, position)
        self.numbers = plain if isinstance(plain, np.ndarray) else None
        self._series = plain if isinstance(plain, pd.Series) else None

    def __len__(self) -> int:
        return len(self.series if self.numbers is None else self.numbers)

    @property
    def described(self) -> str:
        """What the column holds, in words."""
        if self.kind == "unsupported" and value_kind(self.series) == "categorical":
            return f"{NOT_UTF8}, {described(self.series)}"
        return described(self.series)

    @cached_property
    def series(self) -> pd.Series:
        """The column as a Series."""
        return self._series if self._series is not None else pd.Series(self.numbers)

    @cached_property
    def kind(self) -> ValueKind:
        """What it holds; "unsupported" too for text that is not UTF-8, once `words` were asked for."""
        if self.numbers is not None:
            floats = self.numbers.dtype.kind == "f"
            empty = floats and bool(np.isnan(self.numbers[0]) and np.isnan(self.numbers).all())
            return "empty" if empty else "numeric"
        return value_kind(self.series)

    @cached_property
    def factorised(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.object_]]:
        """Position of each row's text among the texts, -1 if missing, and the texts."""
        values = self.series.astype(object)
        if self.kind == "unsupported":  # pandas compares no lists
            values = values.map(repr)
        codes, texts = pd.factorize(values)
        return codes.astype(np.int64), np.asarray(texts, dtype=object)

    @cached_property
    def words(self) -> Words:
        """One word per row, equal where the values are."""
        if self.numbers is not None:
            return number_words(self.numbers)
        if pd.api.types.is_datetime64_any_dtype(self.series.dtype):
            return self.series.astype("int64").to_numpy().view(np.uint64)
        if self.kind in {"categorical", "empty"}:
            try:
                return text_words(*self.factorised)
            except UnicodeEncodeError:
                self.kind = "unsupported"
                del self.factorised
        codes, texts = pd.factorize(self.series.astype(object).map(repr))
        return text_words(codes.astype(np.int64), np.asarray(texts, dtype=object))

    def taken(self, rows: npt.NDArray[np.int64]) -> Numbers | pd.Series:
        """Return some rows."""
        return self.numbers[rows] if self.numbers is not None else self.series.iloc[rows]


def _plain(batch: Batch, position: int) -> Numbers | pd.Series:
    """Return a column as an array where its type is of plain numbers."""
    if isinstance(batch, pd.DataFrame):
        series = batch.iloc[:, position]
        plain = (
            isinstance(series.dtype, np.dtype)
            and series.dtype.kind in "fiub"
            and series.dtype.itemsize <= np.dtype(np.float64).itemsize
        )
        return series.to_numpy() if plain else series
    column = batch.column(position)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_decimal(kind) or (pa.types.is_boolean(kind) and column.null_count):
        column = column.cast(pa.float64())
    if pa.types.is_floating(column.type) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        numbers: Numbers = column.to_numpy(zero_copy_only=False)
        return numbers
    return _arrow_series(column)


def _arrow_series(column: pa.Array) -> pd.Series:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pd.Series(column.cast(pa.binary()).to_pylist(), dtype=object)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pd.Series(np.asarray(column.to_pylist(), dtype=object), dtype=object)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")
    return pd.Series(column.to_pandas())
