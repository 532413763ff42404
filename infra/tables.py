"""Bytes to tables, strictly and through pyarrow only: a file is read as what its name says, or refused."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from csv import Error as CsvError
from csv import reader as csv_reader
from dataclasses import dataclass

import charset_normalizer
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from training.errors import ConfigurationError, InvalidWindowError

SUFFIXES = (".parquet", ".csv", ".csv.gz")
SEPARATORS = ",;\t|"

_ALLOWED = "Allowed: Parquet (.parquet), or CSV (.csv, .csv.gz) with a header of unique names over full rows."
_ENCODING_HINT = "Allowed: UTF-8 or UTF-16; for any other encoding set the CSV option `encoding`."
_SAMPLE = 65_536
_BYTE_ORDER_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How CSV files are written; a separator or an encoding of None is detected in each file."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str = "."

    def __post_init__(self) -> None:
        if self.decimal not in {".", ","}:
            raise ConfigurationError(
                f"The CSV decimal point is {self.decimal!r}.", hint="Allowed: '.' or ','."
            )
        if self.separator is not None and (
            len(self.separator) != 1
            or not self.separator.isascii()
            or self.separator in '"\r\n' + self.decimal
        ):
            raise ConfigurationError(
                f"The CSV separator is {self.separator!r}.",
                hint="Allowed: one ASCII character that is no quote, no line end and not the decimal point.",
            )
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise ConfigurationError(
                    f"The CSV encoding {self.encoding!r} is not known.",
                    hint="Allowed: for example utf-8, cp1252.",
                ) from error


def suffix_of(name: str) -> str | None:
    """Return which of `SUFFIXES` a name ends in, whatever its case, or None."""
    return next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), None)


def read_table(  # noqa: PLR0913 - each says how the bytes are to be read
    name: str,
    data: bytes,
    csv: CsvFormat,
    *,
    strings: frozenset[str] = frozenset(),
    allow_empty: bool = False,
    most_values: int | None = None,
) -> pa.Table:
    """Return the table in an object's bytes; its suffix says the format.

    `strings` names CSV columns to be kept as text ("080" is not 80). In CSV an empty text is a null,
    any other text is itself. `allow_empty` admits a header without rows. Parquet of more than `most_values`
    values (rows times columns) is refused before it is unpacked.

    Raises InvalidWindowError, which names the object, for whatever is not exactly such a file.
    """
    suffix = suffix_of(name)
    if suffix is None:
        raise _invalid(name, "its name says no known format")
    if not data:
        raise _invalid(name, "it holds no bytes")
    if suffix == ".parquet":
        table = _parquet(name, data, most_values)
    else:
        content = _gunzip(name, data) if suffix == ".csv.gz" else data
        table = _csv(name, _text(name, content, csv), csv, strings)
    names = table.column_names
    if unnamed := [position for position, column in enumerate(names, start=1) if not column.strip()]:
        raise _invalid(name, f"the name of column {unnamed[0]} is empty")
    if repeated := sorted({column for column in names if names.count(column) > 1}):
        raise _invalid(name, f"column names repeat: {', '.join(repeated)}")
    if not names or not (table.num_rows or allow_empty):
        raise _invalid(name, "it holds no rows" if names else "it holds no columns")
    return table


def concatenate(parts: Sequence[tuple[str, pa.Table]]) -> pa.Table:
    """Return the rows of all named parts in one table with the first part's order of columns.

    Integers widen to floats and columns of nulls take the other parts' type; any other difference in
    names or types is an InvalidWindowError that names the part.
    """
    (_, whole), *others = [(name, _plain(table)) for name, table in parts]
    columns, schema = set(whole.column_names), whole.schema
    for name, table in others:
        if set(table.column_names) != columns:
            missing, more = columns - set(table.column_names), set(table.column_names) - columns
            raise _invalid(
                name,
                "it has other columns than the parts before it "
                f"(missing: {sorted(missing)}, more: {sorted(more)})",
            )
        try:
            schema = pa.unify_schemas(
                [schema, table.select(schema.names).schema], promote_options="permissive"
            )
        except pa.ArrowException as error:
            raise _invalid(name, f"its columns have other types than the parts before it: {error}") from error
    tables = [whole, *(table.select(schema.names) for _, table in others)]
    return pa.concat_tables(tables, promote_options="permissive")


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a DataFrame with a RangeIndex.

    Numbers stay numeric (integers, booleans and empty columns with nulls become float64 with NaN,
    decimals float64), text and dictionaries become objects of str or None, dates and times of day in
    any zone become UTC timestamps, and nested values stay objects.
    """
    table = _plain(table)
    return pd.DataFrame(
        {name: _series(column) for name, column in zip(table.column_names, table.columns, strict=True)},
        index=pd.RangeIndex(table.num_rows),
    )


def _series(column: pa.ChunkedArray) -> pd.Series:
    kind = column.type
    if pa.types.is_null(kind) or (pa.types.is_boolean(kind) and column.null_count):
        return pd.Series(column.cast(pa.float64()).to_numpy(), dtype="float64")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pd.Series(np.asarray(column.to_pylist(), dtype=object), dtype=object)
    return pd.Series(column.to_pandas(ignore_metadata=True))


def _plain(table: pa.Table) -> pa.Table:
    """Decode dictionaries, turn decimals into floats, and dates and naive times into times in UTC."""
    for position, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_dictionary(kind):
            plain = kind.value_type
        elif pa.types.is_decimal(kind):
            plain = pa.float64()
        elif pa.types.is_date(kind):
            plain = pa.timestamp("s" if pa.types.is_date32(kind) else "ms")
        else:
            plain = kind
        column = table.column(position).cast(plain)
        if pa.types.is_timestamp(plain):
            column = column.cast(pa.timestamp(plain.unit, "UTC"))
        table = table.set_column(position, field.name, column)
    return table


def _parquet(name: str, data: bytes, most_values: int | None) -> pa.Table:
    if not data.startswith(b"PAR1"):
        raise _invalid(name, "it is not Parquet (it does not begin with PAR1)")
    try:
        file = pa.parquet.ParquetFile(pa.BufferReader(data))
        values = file.metadata.num_rows * file.metadata.num_columns
        if most_values is not None and values > most_values:
            raise _invalid(
                name,
                f"it has {values:,} values, and {most_values:,} are allowed",
                hint="Send smaller windows, or raise [incoming] max_window_gigabytes: it is then taken anew.",
            )
        table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _invalid(name, f"it is truncated or damaged Parquet: {error}") from error
    unnamed = [column for column in table.column_names if re.fullmatch(r"__index_level_\d+__", column)]
    return table.drop_columns(unnamed)  # pandas' row numbers, not data


def _gunzip(name: str, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise _invalid(name, f"it is not whole gzip: {error}") from error


def _text(name: str, data: bytes, csv: CsvFormat) -> str:
    """Decode CSV bytes strictly; the encoding is given, marked, UTF-8 or detected, in this order."""
    if data.startswith((b"PAR1", b"\x1f\x8b", b"PK\x03\x04")):
        raise _invalid(name, "it is Parquet, gzip or zip, not the text that its name promises")
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    encoding = csv.encoding or marked or ("utf-8" if b"\0" not in data else _detected(name, data))
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        broken = not data[: error.start].isascii() or error.reason == "unexpected end of data"
        if csv.encoding or marked or broken:
            raise _invalid(
                name, f"it is not valid {encoding}: {error.reason} at byte {error.start}"
            ) from error
        text = data.decode(_detected(name, data))
    if "\0" in text:
        raise _invalid(name, "it holds NUL characters, so it is not text")
    return text.removeprefix("\ufeff")


def _detected(name: str, data: bytes) -> str:
    """Name the encoding of text that is not UTF-8.

    A lone accent tells a detector nothing, so text with non-ASCII bytes only alone or in pairs is taken
    as Western European; longer runs (Cyrillic, Greek, Asian scripts) are left to charset_normalizer.
    """
    if b"\0" in data:
        sample = data[:_SAMPLE]
    else:
        if not re.search(rb"[\x80-\xff]{3}", data):
            return "latin-1" if re.search(rb"[\x81\x8d\x8f\x90\x9d]", data) else "cp1252"
        sample = b"\n".join(line for line in data.splitlines() if not line.isascii())[:_SAMPLE]
    best = charset_normalizer.from_bytes(sample).best()
    if best is None:
        raise _invalid(name, "its encoding could not be detected", hint=_ENCODING_HINT)
    try:
        data.decode(best.encoding)
    except UnicodeDecodeError as error:
        raise _invalid(
            name, f"it is not valid {best.encoding}, the encoding it looks like", hint=_ENCODING_HINT
        ) from error
    return best.encoding


def _csv(name: str, text: str, csv: CsvFormat, strings: frozenset[str]) -> pa.Table:
    if not text.strip():
        raise _invalid(name, "it holds no text")
    separator = csv.separator or _separator(text, csv.decimal)
    quoted = '"' in text
    try:
        if quoted:  # pyarrow reads on to the end of the file where a quote is never closed
            for _ in csv_reader(io.StringIO(text, newline=""), delimiter=separator, strict=True):
                pass
        table = pa.csv.read_csv(
            pa.BufferReader(f"{text}\n".encode()),
            parse_options=pa.csv.ParseOptions(delimiter=separator, newlines_in_values=quoted),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(strings, pa.string()), decimal_point=csv.decimal
            ),
        )
    except (CsvError, pa.ArrowException) as error:
        raise _invalid(name, f"it is not CSV separated by {separator!r}: {str(error)[:200]}") from error
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(position)
            table = table.set_column(position, field.name, pc.if_else(pc.equal(column, ""), None, column))
    return table


def _separator(text: str, decimal: str) -> str:
    """Return the separator under which most rows are as wide as the header, and then the wider table."""
    sample, cut = text[:_SAMPLE], len(text) > _SAMPLE
    best, best_rank = SEPARATORS[0], (0.0, 1)
    for separator in SEPARATORS.replace(decimal, ""):
        try:
            rows = csv_reader(io.StringIO(sample, newline=""), delimiter=separator)
            widths = [len(row) for row in rows if row]
        except CsvError:
            continue
        widths = widths[:-1] if cut and len(widths) > 1 else widths
        rank = (widths.count(widths[0]) / len(widths), widths[0])
        if widths[0] > 1 and rank > best_rank:
            best, best_rank = separator, rank
    return best


def _invalid(name: str, what: str, *, hint: str = _ALLOWED) -> InvalidWindowError:
    return InvalidWindowError(f"{name} cannot be read: {what}.", hint=hint)
