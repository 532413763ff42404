"""The gate within each value of the configured columns."""

from training.gate_evidence import Evidence, GateLimits, result
from training.slice_findings import SliceFinding, clipped_name, recall_bound, slice_findings
from training.types import GateResult, Verdict

NAMED_SMALL = 5
"""Values with too few rows that a reason names; failing ones are all named."""


def slices(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require of each value with enough rows what the other gates require of all rows together.

    The alert rate on normal rows is in range, and recall at the alert budget not surely below the
    champion's, or chance. Too few alerts count only where no anomalies tell a quiet group from a blind one.
    All values that fail are named. A column that is not there, or none of whose values has enough rows,
    passes nothing. Observed is the number of failing values.
    """
    absent = [repr(clipped_name(column)) for column in limits.slices if column not in evidence.judge_slices]
    findings = slice_findings(evidence, limits)
    checked = [finding for finding in findings if finding.verdict is not Verdict.NOT_CHECKED]
    failed, unsure = (
        [finding for finding in checked if finding.verdict is verdict]
        for verdict in (Verdict.FAIL, Verdict.UNDECIDED)
    )
    unseen = [
        repr(clipped_name(column))
        for column in evidence.judge_slices
        if column in limits.slices and column not in {finding.column for finding in checked}
    ]
    bound = recall_bound(evidence, limits)
    lines = {
        "worse": "; ".join(finding.told(bound) for finding in failed),
        "not sure": "; ".join(finding.told(bound) for finding in unsure),
        "no such column among the judge rows": ", ".join(absent),
        f"no value with {limits.min_judge_rows} rows": ", ".join(unseen),
        "too few rows": _small(findings),
    }
    told = [f"{name}: {what}" for name, what in lines.items() if what]
    if checked and not failed and not unsure:
        told.insert(0, f"worse in none of {len(checked)} checked")
    verdict = Verdict.PASS
    if failed:
        verdict = Verdict.FAIL
    elif absent or not limits.slices:
        verdict = Verdict.NOT_CHECKED
    elif unsure or unseen:
        verdict = Verdict.UNDECIDED
    reason = "; ".join(told) or "no column is configured"
    return result("slices", verdict, reason, len(failed) if checked else None, 0)


def _small(findings: tuple[SliceFinding, ...]) -> str:
    small = [finding for finding in findings if finding.verdict is Verdict.NOT_CHECKED]
    named = [f"{finding.name} ({finding.rows})" for finding in small[:NAMED_SMALL]]
    more = [f"{len(small) - NAMED_SMALL} more"] if len(small) > NAMED_SMALL else []
    return ", ".join([*named, *more])
