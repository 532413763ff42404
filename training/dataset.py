"""Rows of one local Parquet file, read by row groups, so that memory holds only what is asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from training.errors import InvalidWindowError

Rows = npt.NDArray[np.int64]


def read_shard(path: Path, columns: list[str], rank: int, size: int) -> pd.DataFrame:
    """Read the rows of one rank: row i of the file belongs to rank i % size, so every row to exactly one.

    Of `columns`, those that the file has.

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    return _read(path, columns, lambda first, last: np.arange(first + (rank - first) % size, last, size))


def read_range(path: Path, columns: list[str] | None, first: int, last: int) -> pd.DataFrame:
    """Read the rows from `first` to before `last`; of `columns`, those that the file has, None being all.

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    return _read(
        path, columns, lambda start, end: np.arange(max(first, start), max(min(last, end), start, first))
    )


def read_places(path: Path, columns: list[str] | None, places: Rows) -> pd.DataFrame:
    """Read the rows at ascending `places`; of `columns`, those that the file has, None being all.

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    return _read(path, columns, lambda first, last: places[(places >= first) & (places < last)])


def read_sample(path: Path, columns: list[str] | None, rows: int, seed: int) -> pd.DataFrame:
    """Read `rows` rows drawn with `seed`, or all where there are no more, in the order of the file.

    Of `columns`, those that the file has; None are all.

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    everything = _open(path).metadata.num_rows
    drawn = np.random.default_rng(seed).choice(
        everything, min(rows, everything), replace=False, shuffle=False
    )
    drawn.sort()
    return read_places(path, columns, drawn)


def _read(path: Path, columns: list[str] | None, select: Callable[[int, int], Rows]) -> pd.DataFrame:
    """Read, group by group, the rows that `select` names of those from `first` to before `last`."""
    with _open(path) as file:
        present = file.schema_arrow.names
        stored = present if columns is None else [name for name in columns if name in present]
        parts = [pa.schema([file.schema_arrow.field(name) for name in stored]).empty_table()]
        first = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=stored)
            parts.append(table.take(pa.array(select(first, first + table.num_rows) - first)))
            first += table.num_rows
    frame: pd.DataFrame = pa.concat_tables(parts).to_pandas(ignore_metadata=True)
    return frame


def _open(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InvalidWindowError(f"{path} is no readable Parquet file: {error}") from error
