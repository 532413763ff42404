"""The data contract: its bounds, what is learned from the champion's reference, and what a file overrides."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal, get_args

from monitoring.profile import ColumnProfile, WindowProfile
from training.errors import ConfigurationError
from training.types import ColumnKind, FeatureSchema

Severity = Literal["warn", "quarantine"]
RuleSeverity = Literal["warn", "quarantine", "off"]
CheckName = Literal[
    "no_rows",
    "missing_columns",
    "repeated_columns",
    "retyped_columns",
    "event_times",
    "all_missing",
    "infinite_values",
    "missing_rates",
    "duplicated_rows",
    "few_rows",
    "row_count",
    "ranges",
    "unseen_categories",
    "constant_columns",
    "time_gaps",
    "late_rows",
    "future_rows",
    "mixed_offsets",
    "label_values",
    "extra_columns",
    "unknown_rules",
]

STRUCTURAL: frozenset[CheckName] = frozenset(get_args(CheckName)[:4])
"""Checks without which no row could be scored: nothing lowers their severity."""

FURTHEST = sys.float_info.max
"""A widened range ends here, to be finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule, as a sentence with the numbers; `column` is None when it concerns the window."""

    check: CheckName | Literal["unreadable"]
    column: str | None
    severity: Severity
    message: str
    observed: float | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLimits:
    """The bounds of the contract; rates are shares of the window's rows, rises are above the reference's.

    A breach beyond a bound named after its check is one of the check's full severity; what lies between
    is a warning. Ranges, unseen categories, gaps and late rows never quarantine unless a contract's file
    says so: drifted data are valid data.

    Attributes:
        contract: A contract's file, relative to the working folder; its entries override what is learned.
        range_margin: The reference's range is widened by this many of its widths on both sides.
        range_share: Share of rows out of range that is no rare excursion any more.
        range_far: A rare excursion is reported only if it lies this many widths of the widened range beyond
            it: heavy tails exceed their past maximum in every window. Of a range that stands in a file, every
            excursion is reported.
        unseen_share: Share of rows with unseen categories, above what the reference lets expect, from
            which on they are reported.
        row_count_factor: A window of fewer or more rows than the reference's windows have, by this factor,
            is reported.
        gap_factor: Likewise the largest gap between event times.
        late_tolerance_days: Rows older than the windows before this one by more are late.
        constant_chance: A constant column, or one without any value, is reported when sampling the reference
            would give one less often than this.
    """

    contract: str | None = None
    min_rows: int = 50
    missing_rise_warn: float = 0.05
    missing_rise_quarantine: float = 0.2
    infinite_share_quarantine: float = 0.01
    duplicate_rise_quarantine: float = 0.2
    range_margin: float = 1.0
    range_share: float = 0.01
    range_far: float = 10.0
    unseen_share: float = 0.01
    row_count_factor: float = 4.0
    gap_factor: float = 10.0
    constant_chance: float = 0.001
    late_tolerance_days: float = 1.0
    future_tolerance_days: float = 1.0

    def __post_init__(self) -> None:
        if self.min_rows < 1:
            raise ConfigurationError(f"min_rows is {self.min_rows}; it must be at least 1")
        least = {
            "range_margin": 0,
            "range_far": 0,
            "row_count_factor": 1,
            "gap_factor": 1,
            "late_tolerance_days": 0,
            "future_tolerance_days": 0,
        }
        for name, bound in least.items():
            if not bound <= getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be {bound} or more")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in {"contract", "min_rows", *least} and not 0 <= value <= 1:
                raise ConfigurationError(f"{item.name} is {value}; it must lie between 0 and 1")
        if not self.missing_rise_warn <= self.missing_rise_quarantine:
            raise ConfigurationError(
                f"missing_rise_warn ({self.missing_rise_warn}) must not exceed "
                f"missing_rise_quarantine ({self.missing_rise_quarantine})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRules:
    """What one column must be; None where nothing is said."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    kind: ColumnKind | None = None
    nullable: bool | None = None
    missing_rate: float | None = None
    range: tuple[float, float] | None = None
    categories: tuple[str, ...] | None = None
    checks: Mapping[CheckName, RuleSeverity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_lowered(self.checks)
        if self.missing_rate is not None and not 0 <= self.missing_rate <= 1:
            raise ValueError(f"missing_rate is {self.missing_rate}; it must lie between 0 and 1")
        if self.range is not None and not float("-inf") < self.range[0] <= self.range[1] < float("inf"):
            raise ValueError(f"range is {list(self.range)}; it must be two finite numbers, the lower first")
        if self.range is not None and (self.kind == "categorical" or self.categories is not None):
            raise ValueError("range is for numeric columns, and categories are for categorical ones")
        if self.categories is not None and self.kind == "numeric":
            raise ValueError("categories are for categorical columns, and this one is numeric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a window must be: learned from a reference, or what a file says of it."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    format_version: Literal[1] = 1
    min_rows: int | None = None
    checks: Mapping[CheckName, RuleSeverity] = field(default_factory=dict)
    columns: Mapping[str, ColumnRules] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_lowered(self.checks)
        if self.min_rows is not None and self.min_rows < 1:
            raise ValueError(f"min_rows is {self.min_rows}; it must be at least 1")

    def rules(self, column: str) -> ColumnRules:
        """What is said of a column."""
        return self.columns.get(column, ColumnRules())

    def severity(self, check: CheckName, column: str | None, default: RuleSeverity) -> RuleSeverity:
        """How severe a breach is: what is said of the column, else of the check, else the check's own."""
        stated = self.rules(column).checks.get(check) if column is not None else None
        return stated or self.checks.get(check) or default

    def overridden_by(self, other: "Contract") -> "Contract":
        """Return this contract with everything that stands in another one."""
        names = [*self.columns, *(name for name in other.columns if name not in self.columns)]
        return Contract(
            min_rows=other.min_rows if other.min_rows is not None else self.min_rows,
            checks={**self.checks, **other.checks},
            columns={name: _overridden(self.rules(name), other.rules(name)) for name in names},
        )


def learn_contract(reference: WindowProfile | None, schema: FeatureSchema, limits: QualityLimits) -> Contract:
    """Learn what windows must be from the profile of the champion's reference; None is no champion yet."""
    columns = reference.columns if reference is not None else {}
    return Contract(
        min_rows=limits.min_rows,
        columns={
            column.name: _learned(columns[column.name], column.kind, reference, column.name, limits)
            for column in schema.features
            if reference is not None and column.name in columns and not columns[column.name].held
        },
    )


def _learned(
    profile: ColumnProfile, kind: ColumnKind, reference: WindowProfile, name: str, limits: QualityLimits
) -> ColumnRules:
    bounds = None
    # A constant says nothing about a range; the drift verdict has a score of its own for it.
    if profile.low is not None and profile.high is not None and profile.low < profile.high:
        margin = limits.range_margin * (profile.high - profile.low) if limits.range_margin else 0.0
        bounds = (max(profile.low - margin, -FURTHEST), min(profile.high + margin, FURTHEST))
    known = kind == "categorical" and profile.categories and not profile.uncounted
    return ColumnRules(
        kind=kind,
        nullable=True,
        missing_rate=reference.missing_rate(name),
        range=bounds,
        categories=tuple(sorted(profile.categories)) if known else None,
    )


def _overridden(learned: ColumnRules, stated: ColumnRules) -> ColumnRules:
    """Let everything stated replace what is learned, unless it is for another kind of column."""
    foreign = {"kind", "categories" if learned.kind == "numeric" else "range"} if learned.kind else set()
    changes = {
        item.name: value
        for item in fields(ColumnRules)
        if item.name not in {"checks", *foreign} and (value := getattr(stated, item.name)) is not None
    }
    return replace(learned, **changes, checks={**learned.checks, **stated.checks})


def _refuse_lowered(checks: Mapping[CheckName, RuleSeverity]) -> None:
    for name, severity in checks.items():
        if name in STRUCTURAL and severity != "quarantine":
            raise ValueError(
                f"{name} is {severity}; without it no row could be scored: only quarantine is allowed"
            )
