"""The data contract: what a window must be before anything is said about drift.

Invalid data is never drift and never starts a retraining: a finding of severity "quarantine" sets
the window aside, a "warn" is reported and the window goes on. Every check is one small function in
`CHECKS` over profiles, limits and a time, and none of them raises, whatever the window holds.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from monitoring import structure_checks, time_checks, value_checks
from monitoring.contract import CheckName, Contract, Finding, RuleSeverity, Severity
from monitoring.inspection import Breach, Inspection, Terms
from monitoring.profile import WindowProfile

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


CHECKS: dict[CheckName, tuple[Check, RuleSeverity]] = {
    "no_rows": (structure_checks.no_rows, "quarantine"),
    "missing_columns": (structure_checks.missing_columns, "quarantine"),
    "repeated_columns": (structure_checks.repeated_columns, "quarantine"),
    "retyped_columns": (structure_checks.retyped_columns, "quarantine"),
    "event_times": (time_checks.event_times, "quarantine"),
    "all_missing": (value_checks.all_missing, "quarantine"),
    "infinite_values": (value_checks.infinite_values, "quarantine"),
    "missing_rates": (value_checks.missing_rates, "quarantine"),
    "duplicated_rows": (value_checks.duplicated_rows, "quarantine"),
    "few_rows": (structure_checks.few_rows, "warn"),
    "row_count": (structure_checks.row_count, "warn"),
    "ranges": (value_checks.ranges, "warn"),
    "unseen_categories": (value_checks.unseen_categories, "warn"),
    "constant_columns": (value_checks.constant_columns, "warn"),
    "time_gaps": (time_checks.time_gaps, "warn"),
    "late_rows": (time_checks.late_rows, "warn"),
    "future_rows": (time_checks.future_rows, "warn"),
    "mixed_offsets": (time_checks.mixed_offsets, "warn"),
    "label_values": (structure_checks.label_values, "warn"),
    "extra_columns": (structure_checks.extra_columns, "warn"),
    "unknown_rules": (structure_checks.unknown_rules, "warn"),
}
"""Every check with its severity, those that spoil most of a window first: a function and a line here each."""
