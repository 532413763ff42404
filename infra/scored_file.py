"""Tables in and out of `floodmark score`: Parquet batch by batch in bounded memory, CSV as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from infra.parquet_batches import open_parquet
from infra.tables import CsvFormat, read_table, suffix_of
from training.errors import ConfigurationError

WRITABLE = (".parquet", ".csv")


class Writer(Protocol):
    """What both of pyarrow's writers do."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append rows."""


def read_batches(path: Path, csv: CsvFormat, *, texts: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in their order; `texts` are CSV columns never to be parsed as numbers.

    Raises:
        ConfigurationError: There is no such file, or its name says no known format.
        InvalidWindowError: It is damaged, or no such table.
    """
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}", hint="name a .parquet, .csv or .csv.gz file")
    suffix = suffix_of(path.name)
    if suffix is None:
        raise ConfigurationError(f"{path} is no .parquet, .csv or .csv.gz", hint="name such a file")
    if suffix == ".parquet":
        yield from open_parquet([path]).batches()
    else:
        yield from read_table(path.name, path.read_bytes(), csv, strings=texts).to_batches()


@contextmanager
def writing(path: Path, first: pa.RecordBatch) -> Iterator[Writer]:
    """Write a file of batches like `first`, which is complete or not there.

    Until the end, the rows lie in a hidden file beside it.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with _writer(partial, first, parquet=path.suffix.lower() == ".parquet") as writer:
            yield writer
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _writer(path: Path, first: pa.RecordBatch, *, parquet: bool) -> Any:  # noqa: ANN401 - pyarrow has no types
    if not parquet:
        return pa.csv.CSVWriter(str(path), first.schema)
    repeating = [
        name for name, values in zip(first.schema.names, first.columns, strict=True) if _repeats(values)
    ]
    return pa.parquet.ParquetWriter(str(path), first.schema, use_dictionary=repeating)


def _repeats(values: pa.Array) -> bool:
    """Whether a Parquet dictionary pays: one of values that mostly differ takes time and saves no space."""
    try:
        return bool(2 * pc.count_distinct(values).as_py() < len(values))
    except pa.ArrowNotImplementedError:  # dictionaries and nested values
        return True


def check_target(path: Path, source: Path, *, force: bool) -> None:
    """Refuse a target that cannot be written, or whose content would be lost.

    Raises:
        ConfigurationError: It is the source, or exists and `force` is not given, or has no folder or
            another format.
    """
    if path.suffix.lower() not in WRITABLE:
        raise ConfigurationError(f"--out is {path}; it must end in {' or '.join(WRITABLE)}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent} for --out", hint="make it first")
    if path.exists() and source.exists() and path.samefile(source):
        raise ConfigurationError(
            f"--out is the input {source}", hint="nothing was written; name another file"
        )
    if path.exists() and not force:
        raise ConfigurationError(
            f"{path} exists already", hint="nothing was written; replace it with --force"
        )
