"""Checks of a window's form: its columns, its rows, and the rules of a contract's file."""

from collections.abc import Iterator
from difflib import get_close_matches
from statistics import median

from monitoring.inspection import Breach, Inspection

SHOWN_COLUMNS = 5


def no_rows(item: Inspection) -> Iterator[Breach]:
    """A window without rows says nothing."""
    if not item.window.rows:
        yield Breach(column=None, message="the window has no rows", observed=0, bound=1)


def missing_columns(item: Inspection) -> Iterator[Breach]:
    """Every feature of the model must be there."""
    for name in item.terms.schema.names() if item.window.rows else ():
        if name not in item.window.names:
            yield Breach(column=name, message=f"the feature {name!r} is missing from the window")
    entity = item.terms.schema.entity_column
    if item.window.rows and entity is not None and entity not in item.window.names:
        yield Breach(column=entity, message=f"the entity column {entity!r} is missing from the window")


def repeated_columns(item: Inspection) -> Iterator[Breach]:
    """A name that stands there twice names nothing."""
    schema = item.terms.schema
    for name in [*schema.names(), schema.time_column, schema.label_column, schema.entity_column]:
        count = item.window.names.count(name) if name is not None else 0
        if count > 1:
            text = f"the column {name!r} stands in the window {count} times, not once"
            yield Breach(column=name, message=text, observed=count, bound=1)


def retyped_columns(item: Inspection) -> Iterator[Breach]:
    """A feature must hold what the schema says, in every row."""
    for column in item.terms.schema.features:
        profile = item.window.columns.get(column.name)
        if profile is not None and profile.held:
            text = f"the feature {column.name!r} is {column.kind} in the schema but holds {profile.held}"
            yield Breach(column=column.name, message=text)


def few_rows(item: Inspection) -> Iterator[Breach]:
    """A window needs a least number of rows."""
    rows, least = item.window.rows, item.contract.min_rows or item.terms.limits.min_rows
    if 0 < rows < least:
        text = f"the window has {rows} rows; fewer than {least} say little"
        yield Breach(column=None, message=text, observed=rows, bound=least)


def row_count(item: Inspection) -> Iterator[Breach]:
    """A window should have about as many rows as those that the champion learned from."""
    rows, factor = item.window.rows, item.terms.limits.row_count_factor
    if not rows or not item.terms.past.rows:
        return
    usual = median(item.terms.past.rows)
    bound = usual / factor if rows < usual else usual * factor
    if not usual / factor <= rows <= usual * factor:
        text = f"the window has {rows} rows; the windows of the reference have {usual:.0f}"
        yield Breach(column=None, message=text, observed=rows, bound=bound)


def label_values(item: Inspection) -> Iterator[Breach]:
    """Labels are 0, 1 or missing; others are not used."""
    name, held = item.terms.schema.label_column, item.window.label_held
    if name is None or not item.window.rows:
        return
    if name not in item.window.names:
        yield Breach(column=name, message=f"the label column {name!r} is missing from the window")
    elif held:
        text = (
            f"the labels in {name!r} are not used: 0, 1, true, false and missing are labels; it holds {held}"
        )
        yield Breach(column=name, message=text)


def extra_columns(item: Inspection) -> Iterator[Breach]:
    """Unknown columns are named once, and ignored."""
    schema = item.terms.schema
    beside = {schema.time_column, schema.label_column, schema.entity_column}
    known = {*schema.names(), *beside, *schema.ignored}
    if extra := sorted(set(item.window.names) - known):
        shown = ", ".join(extra[:SHOWN_COLUMNS])
        text = f"{len(extra)} columns are not in the schema and are ignored: {shown}"
        yield Breach(column=None, message=text, observed=len(extra), bound=0)


def unknown_rules(item: Inspection) -> Iterator[Breach]:
    """Report rules of a file that hold for no column of this model."""
    schema = item.terms.schema
    kinds = {column.name: column.kind for column in schema.features}
    for name, rules in item.terms.stated.columns.items():
        if name not in {*kinds, schema.time_column, schema.label_column, schema.entity_column}:
            near = get_close_matches(name, kinds, n=1)
            meant_for = f"; is {near[0]!r} meant?" if near else ""
            text = f"the contract's file has rules for {name!r}, which is no feature: they hold for nothing"
            yield Breach(column=name, message=text + meant_for)
            continue
        told = {"numeric": rules.range, "categorical": rules.categories}
        meant = {rules.kind, *(kind for kind, rule in told.items() if rule is not None)} - {None}
        if wrong := meant - {kinds.get(name)}:
            learned = f"{kinds[name]} in the schema" if name in kinds else "no feature"
            text = f"the contract's file has rules for {name!r} as {wrong.pop()}, but it is {learned}"
            yield Breach(column=name, message=text)
