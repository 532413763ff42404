"""Rows of Parquet files or objects, one data set in the order of their names, read a few thousand at a time.

Only the row groups that hold what is asked for are read, and never a whole one at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from training.errors import InvalidWindowError
from training.storage import Place, said_for

Rows = npt.NDArray[np.int64]
Source = str | Path | Sequence[str]
"""A file or folder, a path or `s3://bucket/key`, or several of them."""

VALUES_PER_BATCH = 2**21
"""Bounds the memory of a batch, whatever the number of columns."""
MOST_ROWS_PER_BATCH = 65_536
BOUNDED = {"pre_buffer": False, "buffer_size": 1 << 20}
"""Options of `ParquetFile`: by default it holds the bytes of whole row groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetRows:
    """A data set whose footers have been read.

    Attributes:
        files: In the order of their rows.
        groups: For each file, the rows of each of its row groups.
        names: The columns, which every file has.
    """

    files: tuple[Place, ...]
    groups: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(map(sum, self.groups))

    def tables(
        self, columns: list[str] | None, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows from `first` to before `last` in small tables, each with its first row's number.

        Of `columns`, those that the files have; None are all.

        Raises:
            InvalidWindowError: A file is damaged, or no longer there.
            RetryableError: A file cannot be read just now.
        """
        last = self.rows if last is None else last
        stored = list(self.names) if columns is None else [name for name in columns if name in self.names]
        start = 0
        for place, groups in zip(self.files, self.groups, strict=True):
            ends = start + np.cumsum((0, *groups))
            wanted = np.flatnonzero((ends[1:] > first) & (ends[:-1] < last)).tolist()
            if wanted:
                yield from _clipped(place, stored, wanted, int(ends[wanted[0]]), first, last)
            start = int(ends[-1])

    def frames(self, columns: list[str], first: int = 0, last: int | None = None) -> Iterator[pd.DataFrame]:
        """Yield the same rows as data frames."""
        for _, table in self.tables(columns, first, last):
            yield _to_pandas(table)


def open_rows(source: Source) -> ParquetRows:
    """Read the footers of all Parquet files of `source`.

    Raises:
        InvalidWindowError: There is none, one is no readable Parquet file, or has other columns.
        RetryableError: One cannot be read just now.
    """
    sources = [source] if isinstance(source, (str, Path)) else source
    files = tuple(place for item in sources for place in Place.at(item).files())
    if not files:
        raise InvalidWindowError(f"there is no Parquet file at {', '.join(map(str, sources))}")
    groups, names = [], []
    for place in files:
        with _parquet(place) as file:
            metadata = file.metadata
            groups.append(tuple(metadata.row_group(group).num_rows for group in range(file.num_row_groups)))
            names.append(tuple(file.schema_arrow.names))
        if set(names[-1]) != set(names[0]):
            differing = ", ".join(sorted(set(names[-1]) ^ set(names[0])))
            raise InvalidWindowError(f"{place.url} has other columns than {files[0].url}: {differing}")
    return ParquetRows(files=files, groups=tuple(groups), names=names[0])


def stripe(rows: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first row of a rank's equal part of consecutive rows, and the first one after it."""
    return rows * rank // size, rows * (rank + 1) // size


def read_shard(source: Source, columns: list[str], rank: int, size: int) -> pd.DataFrame:
    """Read the rows of one rank: row i of the whole belongs to rank i % size, so every row to exactly one.

    Of `columns`, those that the files have.

    Raises:
        InvalidWindowError: A file is no readable Parquet file.
    """
    rows = open_rows(source)
    return _read(rows, columns, lambda first, last: np.arange(first + (rank - first) % size, last, size))


def read_range(source: Source, columns: list[str] | None, first: int, last: int) -> pd.DataFrame:
    """Read the rows from `first` to before `last`; of `columns`, those that the files have, None being all.

    Raises:
        InvalidWindowError: A file is no readable Parquet file.
    """
    return _read(open_rows(source), columns, np.arange, (first, max(first, last)))


def read_places(source: Source, columns: list[str] | None, places: Rows) -> pd.DataFrame:
    """Read the rows at ascending `places`; of `columns`, those that the files have, None being all.

    Raises:
        InvalidWindowError: A file is no readable Parquet file.
    """
    return _read(open_rows(source), columns, _those_of(places))


def read_sample(source: Source, columns: list[str] | None, rows: int, seed: int) -> pd.DataFrame:
    """Read `rows` rows drawn with `seed`, or all where there are no more, in the order of the files.

    Of `columns`, those that the files have; None are all.

    Raises:
        InvalidWindowError: A file is no readable Parquet file.
    """
    everything = open_rows(source)
    return read_part_of_sample(everything, columns, rows, seed, 0, 1)


def read_part_of_sample(  # noqa: PLR0913, PLR0917 - a sample, and a rank's part of it
    everything: ParquetRows, columns: list[str] | None, rows: int, seed: int, rank: int, size: int
) -> pd.DataFrame:
    """Read of the sample of `read_sample` what lies in a rank's stripe; all ranks' parts are the sample.

    Raises:
        InvalidWindowError: A file is no readable Parquet file.
    """
    count = everything.rows
    drawn = np.random.default_rng(seed).choice(count, min(rows, count), replace=False, shuffle=False)
    drawn.sort()
    return _read(everything, columns, _those_of(drawn), stripe(count, rank, size))


def _those_of(places: Rows) -> Callable[[int, int], Rows]:
    """Return what selects, of the rows from `first` to before `last`, those at ascending `places`."""
    return lambda first, last: places[slice(*places.searchsorted([first, last]))]


def _read(
    rows: ParquetRows,
    columns: list[str] | None,
    select: Callable[[int, int], Rows],
    part: tuple[int, int] | None = None,
) -> pd.DataFrame:
    """Read the rows that `select` names of those from `first` to before `last`, table by table."""
    tables = [
        table.take(pa.array(select(first, first + table.num_rows) - first))
        for first, table in rows.tables(columns, *(part or (0, rows.rows)))
    ]
    if not tables:
        with _parquet(rows.files[0]) as file:
            stored = [name for name in rows.names if columns is None or name in columns]
            tables = [pa.schema([file.schema_arrow.field(name) for name in stored]).empty_table()]
    try:
        return _to_pandas(pa.concat_tables(tables, promote_options="permissive"))
    except pa.ArrowException as error:
        raise InvalidWindowError(f"the files of {rows.files[0].url} do not go together: {error}") from error


def _clipped(  # noqa: PLR0913, PLR0917 - a stretch of one file
    place: Place, columns: list[str], groups: list[int], start: int, first: int, last: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield what the row groups of one file, of which the first begins at row `start`, hold of the rows."""
    batch_rows = min(max(VALUES_PER_BATCH // max(len(columns), 1), 1), MOST_ROWS_PER_BATCH)
    with _parquet(place) as file:
        for batch in file.iter_batches(batch_rows, row_groups=groups, columns=columns):
            lower, upper = max(first, start), min(last, start + batch.num_rows)
            if lower < upper:
                yield lower, pa.Table.from_batches([batch.slice(lower - start, upper - lower)])
            start += batch.num_rows


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


@contextmanager
def _parquet(place: Place) -> Iterator[Any]:
    """Open a Parquet file; what goes wrong inside is told as what it is."""
    try:
        with said_for(place.url), place.open() as stream:
            try:
                yield pq.ParquetFile(stream, **BOUNDED)
            except (OSError, pa.ArrowException) as error:
                if "AWS Error" in str(error) or getattr(error, "errno", None):
                    raise  # of the way there, not of the file: what pyarrow finds wrong in it has no number
                raise InvalidWindowError(f"{place.url} is no readable Parquet file: {error}") from error
    except FileNotFoundError as error:
        raise InvalidWindowError(f"there is no Parquet file {place.url}") from error
