"""Local Parquet files as record batches, so that memory holds a few thousand rows of a window of any size."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from training.errors import InvalidWindowError

ROWS_PER_BATCH = 65_536
BOUNDED = {"pre_buffer": False, "buffer_size": 1 << 20}
"""Options of `ParquetFile`: by default it holds the bytes of the whole file while its batches are read."""

_UNNAMED = re.compile(r"__index_level_\d+__")  # pandas' row numbers, no data


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetWindow:
    """The Parquet files of one window: `rows` in all, the columns of the first file."""

    paths: tuple[Path, ...]
    rows: int
    names: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in their order, reading the next batch while the caller works on one.

        Raises:
            InvalidWindowError: A file is damaged.
        """
        reading = self._read()
        with ThreadPoolExecutor(1) as reader:
            following = reader.submit(next, reading, None)
            while (batch := following.result()) is not None:
                following = reader.submit(next, reading, None)
                yield batch

    def _read(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with _open(path) as file:
                try:
                    yield from file.iter_batches(ROWS_PER_BATCH, columns=list(self.names))
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise _damaged(path, error) from error


def open_parquet(paths: Sequence[Path]) -> ParquetWindow:
    """Read the footers of a window's files.

    Raises:
        InvalidWindowError: A file is no Parquet, or has other columns than the first.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(_open(path)) for path in paths]
        columns = [
            [name for name in file.schema_arrow.names if not _UNNAMED.fullmatch(name)] for file in files
        ]
        for path, names in zip(paths, columns, strict=True):
            if sorted(names) != sorted(columns[0]):
                differing = sorted(set(names) ^ set(columns[0])) or sorted(names)
                raise InvalidWindowError(f"{path} has other columns than {paths[0]}: {differing}")
        return ParquetWindow(
            paths=tuple(paths), rows=sum(file.metadata.num_rows for file in files), names=tuple(columns[0])
        )


def _open(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        return pq.ParquetFile(path, **BOUNDED)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InvalidWindowError:
    return InvalidWindowError(f"{path} cannot be read: it is truncated or damaged Parquet: {error}")
