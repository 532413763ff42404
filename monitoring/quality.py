"""The data contract: what a window must be before anything is said about drift.

Invalid data is never drift and never starts a retraining: a finding of severity "quarantine" sets
the window aside, a "warn" is reported and the window goes on. Every check is one small function in
`CHECKS` over profiles, limits and a time, and none of them raises, whatever the window holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

import numpy as np
import pandas as pd

from monitoring.contract import (
    CheckName,
    Contract,
    Finding,
    QualityLimits,
    RuleSeverity,
    Severity,
    learn_contract,
)
from monitoring.event_times import parsed_times
from monitoring.frames import float_values
from monitoring.past_windows import PastWindows
from monitoring.profile import ColumnProfile, WindowProfile
from training.types import FeatureSchema

SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """What a check found. A `mild` one, short of the check's bound, is never more than a warning."""

    column: str | None
    message: str
    observed: float | None = None
    bound: float | None = None
    mild: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a window is held against.

    Attributes:
        schema: The champion's schema.
        reference: The profile of the champion's reference; None while there is no champion.
        limits: The bounds.
        stated: What a contract's file says, over what is learned from the reference.
        past: Earlier windows, as far as any are known.
    """

    schema: FeatureSchema
    reference: WindowProfile | None = None
    limits: QualityLimits = field(default_factory=QualityLimits)
    stated: Contract = field(default_factory=Contract)
    past: PastWindows = field(default_factory=PastWindows)

    @property
    def contract(self) -> Contract:
        """What is learned, and over it what is stated."""
        return learn_contract(self.reference, self.schema, self.limits).overridden_by(self.stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the checks read: a window, its terms, and the contract that these amount to."""

    window: WindowProfile
    terms: Terms
    contract: Contract
    now: datetime

    def sound(self) -> Iterator[tuple[str, ColumnProfile]]:
        """Return the window's features that hold what the schema says, or nothing."""
        return ((name, column) for name, column in self.window.columns.items() if not column.held)


Check = Callable[[Inspection], Iterator[Breach]]


def check_quality(window: WindowProfile, terms: Terms, *, now: datetime) -> list[Finding]:
    """Hold one window against the contract. Raises nothing, whatever the columns hold.

    Args:
        window: The profile of the raw rows.
        terms: What it is held against.
        now: The aware time that event times must not lie far beyond.

    Returns:
        All findings, in the order of `CHECKS`. Empty means that the window is sound.
    """
    contract = terms.contract
    inspection = Inspection(window=window, terms=terms, contract=contract, now=now)
    return [
        Finding(
            check=name,
            column=breach.column,
            severity=severity,
            message=breach.message,
            observed=breach.observed,
            bound=breach.bound,
        )
        for name, (check, default) in CHECKS.items()
        for breach in check(inspection)
        if (severity := _severity(contract, name, breach, default)) is not None
    ]


def default_severities() -> dict[CheckName, RuleSeverity]:
    """Return how severe a breach of each check is where no contract's file says otherwise."""
    return {name: default for name, (_, default) in CHECKS.items()}


def quarantine_reason(findings: list[Finding]) -> str | None:
    """Join the findings that forbid the use of the window, the worst first; None when there is none.

    Structure outranks values: `CHECKS` is ordered by how much of the window a failure spoils.
    """
    rank: dict[str, int] = {name: position for position, name in enumerate(CHECKS)}
    severe = [finding for finding in findings if finding.severity == "quarantine"]
    severe.sort(key=lambda finding: rank.get(finding.check, -1))
    return "; ".join(finding.message for finding in severe) or None


def _severity(contract: Contract, check: CheckName, breach: Breach, default: RuleSeverity) -> Severity | None:
    severity = contract.severity(check, breach.column, default)
    if severity == "off":
        return None
    return "warn" if breach.mild else severity


def _no_rows(item: Inspection) -> Iterator[Breach]:
    if not item.window.rows:
        yield Breach(column=None, message="the window has no rows", observed=0, bound=1)


def _missing_columns(item: Inspection) -> Iterator[Breach]:
    for name in item.terms.schema.names() if item.window.rows else ():
        if name not in item.window.names:
            yield Breach(column=name, message=f"the feature {name!r} is missing from the window")


def _repeated_columns(item: Inspection) -> Iterator[Breach]:
    for name in [*item.terms.schema.names(), item.terms.schema.time_column, item.terms.schema.label_column]:
        count = item.window.names.count(name) if name is not None else 0
        if count > 1:
            text = f"the column {name!r} stands in the window {count} times, not once"
            yield Breach(column=name, message=text, observed=count, bound=1)


def _retyped_columns(item: Inspection) -> Iterator[Breach]:
    for column in item.terms.schema.features:
        profile = item.window.columns.get(column.name)
        if profile is not None and profile.held:
            text = f"the feature {column.name!r} is {column.kind} in the schema but holds {profile.held}"
            yield Breach(column=column.name, message=text)


def _event_times(item: Inspection) -> Iterator[Breach]:
    name, time = item.terms.schema.time_column, item.window.time
    if name is None or not item.window.rows:
        return
    if name not in item.window.names:
        yield Breach(column=name, message=f"the time column {name!r} is missing from the window")
    elif time is not None and time.unreadable:
        text = (
            f"the time column {name!r} is null or no ISO 8601 time in {time.unreadable} of "
            f"{item.window.rows} rows; it holds {time.held}"
        )
        yield Breach(column=name, message=text, observed=time.unreadable / item.window.rows, bound=0)


def _all_missing(item: Inspection) -> Iterator[Breach]:
    for name, profile in item.sound():
        # A value that is rare in the reference is absent from most windows.
        chance = (item.contract.rules(name).missing_rate or 0.0) ** item.window.rows
        if profile.kind == "empty" and chance < item.terms.limits.constant_chance:
            text = f"the feature {name!r} has no value in {item.window.rows} rows"
            yield Breach(column=name, message=text, observed=1)


def _infinite_values(item: Inspection) -> Iterator[Breach]:
    bound = item.terms.limits.infinite_share_quarantine
    for name, profile in item.sound():
        if profile.infinite:
            share = profile.infinite / item.window.rows
            # Where every present value is infinite nothing is left to score, however few they are.
            mild = share <= bound and item.window.missing_rate(name) < 1
            text = f"the feature {name!r} is infinite in {share:.2%} of the rows; at most {bound:.0%} may be"
            yield Breach(column=name, message=text, observed=share, bound=bound, mild=mild)


def _missing_rates(item: Inspection) -> Iterator[Breach]:
    limits = item.terms.limits
    for name, profile in item.sound():
        rules, rate = item.contract.rules(name), item.window.missing_rate(name)
        if profile.kind == "empty" or not rate > 0:  # nothing but missing values is for the checks above
            continue
        if rules.nullable is False:
            text = f"the feature {name!r} is missing in {rate:.2%} of the rows; the contract allows none"
            yield Breach(column=name, message=text, observed=rate, bound=0)
        elif (
            rules.missing_rate is not None
            and rate < 1
            and rate - rules.missing_rate > limits.missing_rise_warn
        ):
            before = rules.missing_rate
            bound = before + limits.missing_rise_quarantine
            text = (
                f"the feature {name!r} is missing in {rate:.1%} of the rows, in the reference in {before:.1%}"
            )
            mild = rate - before <= limits.missing_rise_quarantine
            yield Breach(column=name, message=text, observed=rate, bound=bound, mild=mild)


def _duplicated_rows(item: Inspection) -> Iterator[Breach]:
    """Judge the share of rows that repeat an earlier one in *all* columns, time and unknown ones included.

    An ignored row number is enough to tell two measurements apart, so nothing is left out. The reference
    may hold the features alone: its share is then an upper bound of what is natural once a time is
    added, and errs towards keeping the window. It bounds nothing for a window that is longer than the
    reference and bears no time, as repetition grows with length where values are few, nor without a
    reference: only a warning.
    """
    reference, share = item.terms.reference, item.window.repeated_share
    natural = reference.repeated_share if reference is not None else 0.0
    if share > natural:
        timed = item.terms.schema.time_column is not None
        bounded = timed or (reference is not None and item.window.rows <= reference.rows)
        mild = not bounded or share - natural <= item.terms.limits.duplicate_rise_quarantine
        text = f"{share:.1%} of the rows repeat an earlier one in all columns, in the reference {natural:.1%}"
        bound = natural + item.terms.limits.duplicate_rise_quarantine
        yield Breach(column=None, message=text, observed=share, bound=bound, mild=mild)


def _few_rows(item: Inspection) -> Iterator[Breach]:
    rows, least = item.window.rows, item.contract.min_rows or item.terms.limits.min_rows
    if 0 < rows < least:
        text = f"the window has {rows} rows; fewer than {least} say little"
        yield Breach(column=None, message=text, observed=rows, bound=least)


def _row_count(item: Inspection) -> Iterator[Breach]:
    rows, factor = item.window.rows, item.terms.limits.row_count_factor
    if not rows or not item.terms.past.rows:
        return
    usual = median(item.terms.past.rows)
    bound = usual / factor if rows < usual else usual * factor
    if not usual / factor <= rows <= usual * factor:
        text = f"the window has {rows} rows; the windows of the reference have {usual:.0f}"
        yield Breach(column=None, message=text, observed=rows, bound=bound)


def _ranges(item: Inspection) -> Iterator[Breach]:
    for name, profile in item.sound():
        bounds = item.contract.rules(name).range
        if bounds is None or profile.low is None or profile.high is None:
            continue
        low, high = bounds
        if low <= profile.low and profile.high <= high:
            continue
        numbers = float_values(item.window.sample[name])
        share = float((np.isfinite(numbers) & ((numbers < low) | (numbers > high))).mean())
        furthest = profile.high if profile.high > high else profile.low
        text = (
            f"the feature {name!r} lies outside of {low:.6g} to {high:.6g} in {_percent(share, item)} "
            f"of the rows, as far as {furthest:.6g}"
        )
        bound, stated = item.terms.limits.range_share, item.terms.stated.rules(name).range is not None
        far = 0.0 if stated else item.terms.limits.range_far * (high / 2 - low / 2) * 2
        if share > bound or profile.low < low - far or profile.high > high + far:
            yield Breach(column=name, message=text, observed=share, bound=bound, mild=share <= bound)


def _unseen_categories(item: Inspection) -> Iterator[Breach]:
    """Report categories that the contract does not know, beyond what a reference of this size misses.

    A reference does not hold every category there is: its share of categories that occur once estimates
    the chance that the next row brings a new one (Good, The population frequencies of species, Biometrika
    40, 1953). A list that stands in a file is complete.
    """
    for name, profile in item.sound():
        known = item.contract.rules(name).categories
        if known is None or not profile.categories:
            continue
        unseen = {text: count for text, count in profile.categories.items() if text not in set(known)}
        share = sum(unseen.values()) / item.window.rows
        bound = 0.0
        if item.terms.stated.rules(name).categories is None and item.terms.reference is not None:
            once = sum(count == 1 for count in item.terms.reference.columns[name].categories.values())
            bound = item.terms.limits.unseen_share + once / item.terms.reference.rows
        if share > bound:
            commonest = sorted(unseen, key=lambda text: (-unseen[text], text))[:SHOWN]
            text = (
                f"the feature {name!r} holds {len(unseen)} unseen categories in {share:.2%} of the rows: "
                + ", ".join(repr(category)[:40] for category in commonest)
            )
            yield Breach(column=name, message=text, observed=share, bound=bound)


def _constant_columns(item: Inspection) -> Iterator[Breach]:
    for name, profile in item.sound():
        before = item.terms.reference.columns.get(name) if item.terms.reference is not None else None
        if before is None or profile.constant is None:
            continue
        present = item.window.rows - profile.missing
        # A rare event is absent from most windows: only a constant that sampling would hardly give counts.
        chance = before.top_share**present
        if chance < item.terms.limits.constant_chance:
            text = f"the feature {name!r} is {profile.constant!r} in every row, and varies in the reference"
            yield Breach(column=name, message=text, observed=chance, bound=item.terms.limits.constant_chance)


def _time_gaps(item: Inspection) -> Iterator[Breach]:
    time, factor = item.window.time, item.terms.limits.gap_factor
    if time is None or time.times is None or not item.terms.past.gaps_seconds:
        return
    usual, gap = median(item.terms.past.gaps_seconds), time.times.largest_gap_seconds
    if gap > factor * usual > 0 and time.gap_from is not None:
        text = (
            f"no event for {gap:.6g} s after {time.gap_from.isoformat()}; the largest gap is {usual:.6g} s "
            "in the windows of the reference"
        )
        yield Breach(column=item.terms.schema.time_column, message=text, observed=gap, bound=factor * usual)


def _late_rows(item: Inspection) -> Iterator[Breach]:
    """Report rows that are older than the end of the windows before this one.

    A window is before this one if it ends no later: so a repaired window that is taken again is not late
    as a whole, and a time in the future that an earlier window held makes no later window late.
    """
    time = item.window.time
    if time is None or time.times is None:
        return
    before = [end for end in item.terms.past.ends if end <= time.times.latest]
    if not before:
        return
    bound = max(before) - timedelta(days=item.terms.limits.late_tolerance_days)
    if time.times.earliest < bound:
        share = _share_of_times(item, lambda times: times < bound)
        text = (
            f"{_percent(share, item)} of the rows are older than {bound.isoformat()}, from "
            f"{time.times.earliest.isoformat()} on; the windows before end {max(before).isoformat()}"
        )
        yield Breach(column=item.terms.schema.time_column, message=text, observed=share, bound=0)


def _future_rows(item: Inspection) -> Iterator[Breach]:
    time = item.window.time
    if time is None or time.times is None:
        return
    bound = item.now + timedelta(days=item.terms.limits.future_tolerance_days)
    if time.times.latest > bound:
        share = _share_of_times(item, lambda times: times > bound)
        text = (
            f"{_percent(share, item)} of the event times lie beyond {bound.isoformat()}, up to "
            f"{time.times.latest.isoformat()}"
        )
        yield Breach(column=item.terms.schema.time_column, message=text, observed=share, bound=0)


def _mixed_offsets(item: Inspection) -> Iterator[Breach]:
    time, name = item.window.time, item.terms.schema.time_column
    if time is not None and len(time.offsets) > 1:
        text = f"the times in {name!r} are written in several UTC offsets: {', '.join(time.offsets)}"
        yield Breach(column=name, message=text, observed=len(time.offsets), bound=1)


def _label_values(item: Inspection) -> Iterator[Breach]:
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


def _extra_columns(item: Inspection) -> Iterator[Breach]:
    schema = item.terms.schema
    known = {*schema.names(), schema.time_column, schema.label_column, *schema.ignored}
    if extra := sorted(set(item.window.names) - known):
        shown = ", ".join(extra[:SHOWN])
        text = f"{len(extra)} columns are not in the schema and are ignored: {shown}"
        yield Breach(column=None, message=text, observed=len(extra), bound=0)


def _unknown_rules(item: Inspection) -> Iterator[Breach]:
    """Report rules of a file that hold for no column of this model."""
    schema = item.terms.schema
    kinds = {column.name: column.kind for column in schema.features}
    for name, rules in item.terms.stated.columns.items():
        if name not in {*kinds, schema.time_column, schema.label_column}:
            yield Breach(
                column=name, message=f"the contract's file has rules for {name!r}, which is no feature"
            )
            continue
        told = {"numeric": rules.range, "categorical": rules.categories}
        meant = {rules.kind, *(kind for kind, rule in told.items() if rule is not None)} - {None}
        if wrong := meant - {kinds.get(name)}:
            learned = f"{kinds[name]} in the schema" if name in kinds else "no feature"
            text = f"the contract's file has rules for {name!r} as {wrong.pop()}; it is {learned}"
            yield Breach(column=name, message=text)


CHECKS: dict[CheckName, tuple[Check, RuleSeverity]] = {
    "no_rows": (_no_rows, "quarantine"),
    "missing_columns": (_missing_columns, "quarantine"),
    "repeated_columns": (_repeated_columns, "quarantine"),
    "retyped_columns": (_retyped_columns, "quarantine"),
    "event_times": (_event_times, "quarantine"),
    "all_missing": (_all_missing, "quarantine"),
    "infinite_values": (_infinite_values, "quarantine"),
    "missing_rates": (_missing_rates, "quarantine"),
    "duplicated_rows": (_duplicated_rows, "quarantine"),
    "few_rows": (_few_rows, "warn"),
    "row_count": (_row_count, "warn"),
    "ranges": (_ranges, "warn"),
    "unseen_categories": (_unseen_categories, "warn"),
    "constant_columns": (_constant_columns, "warn"),
    "time_gaps": (_time_gaps, "warn"),
    "late_rows": (_late_rows, "warn"),
    "future_rows": (_future_rows, "warn"),
    "mixed_offsets": (_mixed_offsets, "warn"),
    "label_values": (_label_values, "warn"),
    "extra_columns": (_extra_columns, "warn"),
    "unknown_rules": (_unknown_rules, "warn"),
}
"""Every check with its severity, those that spoil most of a window first: a function and a line here each."""


def _share_of_times(item: Inspection, beyond: Callable[[pd.Series], pd.Series]) -> float:
    """Share of the sampled rows whose time lies beyond a bound."""
    return float(beyond(parsed_times(item.window.sample[item.terms.schema.time_column])).mean())


def _percent(share: float, item: Inspection) -> str:
    """Show a share of the sample, which may have missed what the whole window holds."""
    least = 1 / max(len(item.window.sample), 1)
    about = "about " if len(item.window.sample) < item.window.rows else ""
    return f"{about}{share:.2%}" if share else f"less than {least:.2%}"
