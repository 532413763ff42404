"""The data contract: what a window must be before anything is said about drift.

Invalid data is never drift and never starts a retraining: a finding of severity "quarantine" sets
the window aside, a "warn" is reported and the window goes on. Every check is one small function in
`CHECKS`, and none of them raises, whatever the frame holds.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pandas as pd

from monitoring.contract import (
    Finding,
    Inspection,
    Profile,
    QualityLimits,
    Severity,
    duplicate_share,
    inspect,
)
from monitoring.frames import (
    column_count,
    described,
    usable_labels,
    value_kind,
)
from training.types import FeatureSchema

Check = Callable[[Inspection], Iterator[tuple[str | None, Severity, str]]]


def check_quality(
    frame: pd.DataFrame,
    schema: FeatureSchema,
    profile: Profile | None,
    *,
    now: datetime,
    limits: QualityLimits | None = None,
) -> list[Finding]:
    """Hold one window against the contract. Raises nothing, whatever the columns hold.

    Args:
        frame: The raw rows; columns in any order.
        schema: The champion's schema.
        profile: Facts about the champion's reference; None while there is no champion.
        now: The aware time that event times must not lie far beyond.
        limits: The bounds; None for the defaults.

    Returns:
        All findings, in the order of `CHECKS`. Empty means that the window is sound.
    """
    window = inspect(frame, schema, profile, now, limits or QualityLimits())
    return [
        Finding(check=name, column=column, severity=severity, message=message)
        for name, check in CHECKS.items()
        for column, severity, message in check(window)
    ]


def quarantine_reason(findings: list[Finding]) -> str | None:
    """Join the findings that forbid the use of the window, the worst first; None when there is none.

    Structure outranks values: `CHECKS` is ordered by how much of the window a failure spoils.
    """
    rank = {name: position for position, name in enumerate(CHECKS)}
    severe = [finding for finding in findings if finding.severity == "quarantine"]
    severe.sort(key=lambda finding: rank[finding.check])
    return "; ".join(finding.message for finding in severe) or None


def _no_rows(window: Inspection) -> Iterator[tuple[None, Severity, str]]:
    if not len(window.frame):
        yield None, "quarantine", "the window has no rows"


def _missing_columns(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    for name in window.schema.names():
        if name not in window.frame.columns:
            yield name, "quarantine", f"the feature {name!r} is missing from the window"


def _repeated_columns(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    for name in [*window.schema.names(), window.schema.time_column, window.schema.label_column]:
        count = column_count(window.frame, name)
        if name is not None and count > 1:
            yield name, "quarantine", f"the column {name!r} stands in the window {count} times, not once"


def _retyped_columns(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    for column in window.schema.features:
        if column.name in window.kinds and column.name not in window.missing:
            held = described(window.frame[column.name])
            text = f"the feature {column.name!r} is {column.kind} in the schema but holds {held}"
            yield column.name, "quarantine", text


def _event_times(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    name = window.schema.time_column
    if name is None or not len(window.frame):
        return
    if name not in window.once:
        if name not in window.frame.columns:
            yield name, "quarantine", f"the time column {name!r} is missing from the window"
        return
    times = _parsed_times(window.frame[name])
    unreadable = int(times.isna().sum())
    if unreadable:
        text = (
            f"the time column {name!r} is null or no ISO 8601 time in {unreadable} of {len(times)} rows; "
            f"it holds {described(window.frame[name][times.isna()])}"
        )
        yield name, "quarantine", text
    latest_allowed = window.now + timedelta(days=window.limits.future_tolerance_days)
    ahead = int((times > latest_allowed).sum())
    if ahead:
        text = (
            f"{ahead} of {len(times)} event times lie beyond {latest_allowed.isoformat()}, "
            f"up to {times.max().isoformat()}"
        )
        yield name, "warn", text


def _all_missing(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    expected = {name for name, reference in window.referenced() if reference.missing_rate >= 1}
    for name in window.missing:
        if window.kinds[name] == "empty" and name not in expected:
            yield name, "quarantine", f"the feature {name!r} has no value in {len(window.frame)} rows"


def _infinite_values(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    bound = window.limits.infinite_share_quarantine
    for name, share in window.infinite.items():
        if share > 0:
            # Where every present value is infinite nothing is left to score, however few they are.
            severe = share > bound or window.missing[name] >= 1
            text = f"the feature {name!r} is infinite in {share:.2%} of the rows; at most {bound:.0%} may be"
            yield name, "quarantine" if severe else "warn", text


def _missing_rates(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    limits = window.limits
    for name, reference in window.referenced():
        rate, before = window.missing[name], reference.missing_rate
        if rate - before > limits.missing_rise_warn and rate < 1:  # 1 is for the checks above
            severe = rate - before > limits.missing_rise_quarantine
            text = (
                f"the feature {name!r} is missing in {rate:.1%} of the rows, in the reference in {before:.1%}"
            )
            yield name, "quarantine" if severe else "warn", text


def _duplicated_rows(window: Inspection) -> Iterator[tuple[None, Severity, str]]:
    """Judge the share of rows that repeat an earlier one in *all* columns, time and unknown ones included.

    An ignored row number is enough to tell two measurements apart, so nothing is left out. The reference
    may hold the features alone: its share is then an upper bound of what is natural once a time is
    added, and errs towards keeping the window. It bounds nothing for a window that is longer than the
    reference and bears no time, as repetition grows with length where values are few, nor without a
    reference: only a warning.
    """
    profile = window.profile
    share, natural = duplicate_share(window.frame), profile.duplicate_share if profile is not None else 0.0
    if share > natural:
        timed = window.schema.time_column is not None
        bounded = timed or (profile is not None and len(window.frame) <= profile.rows)
        severe = bounded and share - natural > window.limits.duplicate_rise_quarantine
        text = f"{share:.1%} of the rows repeat an earlier one in all columns, in the reference {natural:.1%}"
        yield None, "quarantine" if severe else "warn", text


def _few_rows(window: Inspection) -> Iterator[tuple[None, Severity, str]]:
    rows, least = len(window.frame), window.limits.min_rows
    if 0 < rows < least:
        yield None, "warn", f"the window has {rows} rows; fewer than {least} say little"


def _constant_columns(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    for name, reference in window.referenced():
        if not window.missing[name] < 1:
            continue
        present = window.frame[name].dropna()
        # A rare event is absent from most windows: only a constant that sampling would hardly give counts.
        if reference.top_share ** len(present) >= window.limits.constant_chance:
            continue
        if bool((present == present.iloc[0]).all()):
            value = present.iloc[:1].tolist()[0]
            text = f"the feature {name!r} is {value!r} in every row, and varies in the reference"
            yield name, "warn", text


def _label_values(window: Inspection) -> Iterator[tuple[str, Severity, str]]:
    name = window.schema.label_column
    if name is None or not len(window.frame):
        return
    if name not in window.frame.columns:
        yield name, "warn", f"the label column {name!r} is missing from the window"
    elif name not in window.once or value_kind(window.frame[name]) == "empty":
        return  # repeated columns are reported elsewhere, and unlabelled windows are the rule
    elif usable_labels(window.frame, window.schema) is None:
        held = described(window.frame[name])
        text = (
            f"the labels in {name!r} are not used: 0, 1, true, false and missing are labels; it holds {held}"
        )
        yield name, "warn", text


def _extra_columns(window: Inspection) -> Iterator[tuple[None, Severity, str]]:
    schema = window.schema
    known = {*schema.names(), schema.time_column, schema.label_column, *schema.ignored}
    extra = sorted({str(name) for name in window.frame.columns if name not in known})
    if extra:
        yield (
            None,
            "warn",
            f"{len(extra)} columns are not in the schema and are ignored: {', '.join(extra[:5])}",
        )


CHECKS: dict[str, Check] = {
    "no_rows": _no_rows,
    "missing_columns": _missing_columns,
    "repeated_columns": _repeated_columns,
    "retyped_columns": _retyped_columns,
    "event_times": _event_times,
    "all_missing": _all_missing,
    "infinite_values": _infinite_values,
    "missing_rates": _missing_rates,
    "duplicated_rows": _duplicated_rows,
    "few_rows": _few_rows,
    "constant_columns": _constant_columns,
    "label_values": _label_values,
    "extra_columns": _extra_columns,
}
"""Every check, those that spoil most of a window first. A new check is a function and a line here."""


def _parsed_times(values: pd.Series) -> pd.Series:
    """Read event times in UTC, NaT where unreadable. Numbers are: nothing says what unit they count."""
    kind = value_kind(values)
    if kind not in {"timestamps", "categorical"}:
        return pd.Series(pd.NaT, index=values.index, dtype="datetime64[ns, UTC]")
    if kind == "categorical":
        values = values.astype(object)
    return pd.to_datetime(values, format="ISO8601", errors="coerce", utc=True)
