"""The body of a request for scores, in JSON or Arrow's formats, as the columns of a model's features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from monitoring.plain_columns import PlainColumn
from training.errors import FloodmarkError, InvalidWindowError
from training.types import FeatureSchema

MAX_BODY_BYTES = 16 << 20
MAX_ROWS = 65_536
"""Of one request: bounds the memory of a compressed body, and how long others wait for it."""

SHAPES = '{"rows": [{column: value, ...}, ...]} or {"columns": {name: [value, ...], ...}}'
SHOWN = 5


class TooLargeError(FloodmarkError):
    """A request is larger than what is scored at once."""


class UnknownContentError(FloodmarkError):
    """A request's body is of a type that is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """At least one row: a value per row in each column, a column per feature, others left out."""

    rows: int
    columns: Mapping[str, PlainColumn]


def read_request(body: bytes, content_type: str, schema: FeatureSchema) -> ScoreRequest:
    """Read a body by its content type; without one it is JSON.

    Raises:
        InvalidWindowError: It cannot be read, holds no row, or lacks a feature.
        TooLargeError: It has more rows than `MAX_ROWS`.
        UnknownContentError: The type is none of `READERS`.
    """
    media_type = content_type.partition(";")[0].strip().lower() or JSON
    if media_type not in READERS:
        raise UnknownContentError(
            f"the content type is {media_type!r}",
            hint=f"allowed are {', '.join(READERS)}; curl needs -H 'content-type: {JSON}'",
        )
    return READERS[media_type](body, schema)


def _read_json(body: bytes, schema: FeatureSchema) -> ScoreRequest:
    try:
        document = orjson.loads(body)
    except ValueError as error:
        raise InvalidWindowError(f"the body is not valid JSON: {error}", hint=f"it is {SHAPES}") from error
    match document:
        case {"rows": list(rows), **rest} if not rest:
            _check_count(len(rows))
            return ScoreRequest(rows=len(rows), columns=_columns_of_rows(rows, schema.names()))
        case {"columns": dict(columns), **rest} if not rest:
            return _checked_columns(columns, schema.names())
    found = ", ".join(map(repr, document)) if isinstance(document, dict) else type(document).__name__
    raise InvalidWindowError(f"the body holds {found[:200] or 'nothing'}", hint=f"it is {SHAPES}")


def _columns_of_rows(rows: list[Any], names: list[str]) -> dict[str, PlainColumn]:
    try:
        return {name: [row[name] for row in rows] for name in names}
    except (KeyError, TypeError, IndexError):
        for position, row in enumerate(rows):
            if not isinstance(row, dict):
                raise InvalidWindowError(
                    f"row {position} is no object but {type(row).__name__}", hint=f"it is {SHAPES}"
                ) from None
            _check_names(names, list(row), f"row {position}")
        raise


def _checked_columns(columns: dict[str, Any], names: list[str]) -> ScoreRequest:
    _check_names(names, list(columns), "the body")
    for name in names:
        if not isinstance(columns[name], list):
            raise InvalidWindowError(f"the column {name!r} is no list but {type(columns[name]).__name__}")
    rows = len(columns[names[0]])
    if odd := next((name for name in names if len(columns[name]) != rows), None):
        raise InvalidWindowError(
            f"the column {odd!r} has {len(columns[odd])} values and {names[0]!r} has {rows}",
            hint="each column holds one value per row, null for a missing one",
        )
    _check_count(rows)
    return ScoreRequest(rows=rows, columns={name: columns[name] for name in names})


def _read_parquet(body: bytes, schema: FeatureSchema) -> ScoreRequest:
    with pq.ParquetFile(pa.BufferReader(body), read_dictionary=schema.names("categorical")) as file:
        _check_names(schema.names(), file.schema_arrow.names, "the body")
        _check_count(file.metadata.num_rows)
        return _request_of(file.read(columns=schema.names(), use_threads=False), schema)


def _read_stream(body: bytes, schema: FeatureSchema) -> ScoreRequest:
    names = schema.names()
    with pa.ipc.open_stream(body) as reader:
        _check_names(names, reader.schema.names, "the body")
        batches, rows = [], 0
        for batch in reader:
            rows += batch.num_rows
            _check_count(rows, least=0)
            batches.append(batch)
        return _request_of(pa.Table.from_batches(batches, reader.schema).select(names), schema)


def _request_of(table: pa.Table, schema: FeatureSchema) -> ScoreRequest:
    _check_count(table.num_rows)
    table.validate(full=True)  # offsets and codes that point nowhere would be read as memory
    return ScoreRequest(
        rows=table.num_rows, columns={name: table[name].combine_chunks() for name in schema.names()}
    )


def _arrow(
    read: Callable[[bytes, FeatureSchema], ScoreRequest],
) -> Callable[[bytes, FeatureSchema], ScoreRequest]:
    """Turn whatever a damaged body makes pyarrow raise into an error about the body."""

    def guarded(body: bytes, schema: FeatureSchema) -> ScoreRequest:
        try:
            return read(body, schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidWindowError(f"the body is truncated or damaged: {str(error)[:200]}") from error

    return guarded


def _check_names(wanted: list[str], found: Sequence[str], where: str) -> None:
    """Require each name exactly once."""
    known = set(found)
    if missing := [name for name in wanted if name not in known]:
        shown = ", ".join(map(repr, missing[:SHOWN])) + (", …" if len(missing) > SHOWN else "")
        raise InvalidWindowError(
            f"{where} lacks {len(missing)} of {len(wanted)} features: {shown}",
            hint="null is allowed for a missing value; GET /model names the features and their kinds",
        )
    if len(known) < len(found) and (twice := [name for name in wanted if found.count(name) > 1]):
        raise InvalidWindowError(f"{where} has {twice[0]!r} {found.count(twice[0])} times, not once")


def _check_count(rows: int, least: int = 1) -> None:
    if rows < least:
        raise InvalidWindowError("the body holds no rows", hint="at least one is needed")
    if rows > MAX_ROWS:
        raise TooLargeError(f"the body holds {rows} rows", hint=f"at most {MAX_ROWS} are scored at once")


JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
READERS: Mapping[str, Callable[[bytes, FeatureSchema], ScoreRequest]] = {
    JSON: _read_json,
    PARQUET: _arrow(_read_parquet),
    ARROW_STREAM: _arrow(_read_stream),
}
