"""From the first window to the feature schema: which columns a model learns from, and why the others do not.

The schema is inferred once and stored with the champion; from then on it is the contract that
`monitoring.quality` holds every window to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from monitoring.frames import ValueKind, described, value_kind
from training.errors import ConfigurationError, InvalidWindowError
from training.types import Column, FeatureSchema

IDENTIFIER_ROWS = 100
"""From this many rows on, a text column that is mostly distinct values is taken for an identifier."""

IDENTIFIER_DISTINCT_SHARE = 0.5


def text_columns(
    schema: FeatureSchema | None, time_column: str | None, entity_column: str | None = None
) -> frozenset[str]:
    """Return the columns that no CSV file has parsed: categories stay words, times keep their UTC offset."""
    categories = schema.names("categorical") if schema is not None else []
    entity = schema.entity_column if schema is not None else entity_column
    return frozenset([*categories, *(name for name in (time_column, entity) if name is not None)])


def with_columns(
    schema: FeatureSchema,
    *,
    time_column: str | None,
    label_column: str | None,
    entity_column: str | None = None,
) -> FeatureSchema:
    """Return a model's features with the time, label and entity columns that are configured now.

    Raises:
        ConfigurationError: One of them is a feature of the model.
    """
    columns = {"time_column": time_column, "label_column": label_column, "entity_column": entity_column}
    for name, column in columns.items():
        if column in schema.names():
            raise ConfigurationError(
                f"{name} is {column!r}, but the model was trained with that column as a feature",
                hint="start a new model with --model NAME, naming the column from the first window on",
            )
    return replace(schema, time_column=time_column, label_column=label_column, entity_column=entity_column)


def infer_schema(
    frame: pd.DataFrame,
    *,
    time_column: str | None,
    label_column: str | None,
    ignore: Sequence[str],
    entity_column: str | None = None,
) -> tuple[FeatureSchema, list[str]]:
    """Infer the feature schema from the first window.

    Args:
        frame: The raw rows of the window (rows, columns).
        time_column: The event time, never a feature.
        label_column: The label that detectors are judged by, never a feature.
        ignore: Columns that are never features; they may be absent.
        entity_column: Whose row it is, never a feature.

    Returns:
        The schema, features in the order of `frame`, and one warning for each column left out and
        for a missing label column. Columns left out are among the schema's ignored ones.

    Raises:
        InvalidWindowError: No rows, a repeated or unnamed column, no time or entity column, an empty column,
            or no feature at all.
    """
    _require_usable(frame, {"time_column": time_column, "entity_column": entity_column})
    warnings = []
    if label_column is not None and label_column not in frame.columns:
        warnings.append(
            f"the label column {label_column!r} is not in the first window: no detector is judged by labels"
        )
    features: list[Column] = []
    ignored = list(dict.fromkeys(ignore))
    for name in frame.columns:
        if name in {time_column, label_column, entity_column, *ignore}:
            continue
        kind = value_kind(frame[name])
        if kind == "empty":
            raise InvalidWindowError(
                f"the column {name!r} has no value in the {len(frame)} rows of the first window",
                hint="Name it in ignore_columns, or repair the window, and run the same command again.",
            )
        objection = _objection(frame[name], kind)
        if objection is not None:
            warnings.append(f"the column {name!r} is not used as a feature: it {objection}")
            ignored.append(name)
        elif kind == "numeric" or kind == "categorical":  # noqa: PLR1714 - mypy narrows by == only
            features.append(Column(name=name, kind=kind))
    if not features:
        raise InvalidWindowError(
            f"no column of the first window can be a feature; its columns are {list(frame.columns)}",
            hint="At least one numeric or text column is needed beside the time, label and ignored columns.",
        )
    schema = FeatureSchema(
        features=tuple(features),
        time_column=time_column,
        label_column=label_column,
        ignored=tuple(ignored),
        entity_column=entity_column,
    )
    return schema, warnings


def _require_usable(frame: pd.DataFrame, needed: Mapping[str, str | None]) -> None:
    if frame.empty:
        raise InvalidWindowError(
            f"the first window has {len(frame)} rows and {len(frame.columns)} columns",
            hint="A schema needs at least one row of one column.",
        )
    unnamed = [name for name in frame.columns if not isinstance(name, str) or not name]
    if unnamed:
        raise InvalidWindowError(
            f"the first window has columns without a text name: {unnamed[:5]}", hint="Write a header row."
        )
    repeated = sorted(set(frame.columns[frame.columns.duplicated()]))
    if repeated:
        raise InvalidWindowError(
            f"the first window names these columns more than once: {repeated[:5]}",
            hint="Each column needs a name of its own.",
        )
    for setting, name in needed.items():
        if name is not None and name not in frame.columns:
            raise InvalidWindowError(
                f"the first window has no {setting.replace('_', ' ')} {name!r}; "
                f"its columns are {list(frame.columns)}",
                hint=f"Correct {setting}, or repair the window, and run the same command again.",
            )


def _objection(values: pd.Series, kind: ValueKind) -> str | None:
    """Say why a column that has values is no feature; None when it is one."""
    if kind == "timestamps":
        return "holds timestamps"
    if kind == "unsupported":
        return f"holds neither numbers nor text alone, but {described(values)}"
    if kind == "categorical" and len(values) >= IDENTIFIER_ROWS:
        distinct = int(values.nunique())
        if distinct > IDENTIFIER_DISTINCT_SHARE * len(values):
            return f"looks like an identifier, with {distinct} distinct texts in {len(values)} rows"
    return None
