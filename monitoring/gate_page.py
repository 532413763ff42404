"""The page of a candidate's gates: what became of it and why, and what both models make of the same rows."""

from dataclasses import dataclass
from datetime import datetime

from monitoring.alerts import Site, promote_command
from monitoring.gate_pictures import Curve, ModelPicture
from monitoring.records import PromotionRecord, TrainingRecord
from monitoring.rendering import clipped, counted, number, template
from training.slice_findings import SliceFinding
from training.types import GateResult, PromotionOutcome, TrainingRequest, Verdict

WORDS = {PromotionOutcome.UNDECIDED: "waits for a person"}
"""Outcomes whose name says less than people want to read."""

SHOWN_SLICES = 100

_ORDER = (Verdict.FAIL, Verdict.UNDECIDED, Verdict.NOT_CHECKED, Verdict.PASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePage:
    """Everything that the page of a candidate's gates shows.

    Attributes:
        outcome: What became of the candidate, in a word or few.
        verdict: The same in a sentence.
        follows: What serves now.
        gates: Failures first, then what could not be decided or checked, then what passed.
        lineage: What the candidate came from, as terms and texts.
        target_rate: The alert rate that the flood mark was set for.
        models: The candidate, and the champion where there is one.
        ranked: The rows that the curves are drawn on, in words.
        slices: Failures first; at most `SHOWN_SLICES`, of `all_slices`.
        notes: What could not be drawn or stored, and why.
        command: What to run next.
    """

    model: str
    version: str
    outcome: str
    verdict: str
    follows: str
    gates: tuple[GateResult, ...]
    lineage: tuple[tuple[str, str], ...]
    command: str
    written: datetime
    target_rate: float | None = None
    models: tuple[ModelPicture, ...] = ()
    curves: tuple[Curve, ...] = ()
    ranked: str = ""
    slices: tuple[SliceFinding, ...] = ()
    all_slices: int = 0
    notes: tuple[str, ...] = ()

    def to_html(self) -> str:
        """Return the page."""
        return template("gate_page.html.jinja").render(page=self).lstrip()


def gate_page(
    record: PromotionRecord, training: TrainingRecord, request: TrainingRequest, site: Site, *, now: datetime
) -> GatePage:
    """Put a judged candidate into words, without any picture."""
    return GatePage(
        model=site.model,
        version=record.version,
        outcome="in shadow" if record.shadow else _word(record.outcome),
        verdict=verdict_sentence(record),
        follows=_follows(record),
        gates=tuple(worst_first(record.gates)),
        lineage=_lineage(training, request),
        command=next_command(record, site),
        written=now,
        target_rate=request.target_alert_rate,
    )


def verdict_sentence(record: PromotionRecord) -> str:
    """Say in a plain sentence what became of a candidate, naming every gate that did not pass."""
    named = f"Version {record.version}"
    failed = [gate.gate for gate in record.gates if gate.verdict is Verdict.FAIL]
    unsure = [gate.gate for gate in record.gates if gate.verdict in (Verdict.UNDECIDED, Verdict.NOT_CHECKED)]
    gates = counted(len(record.gates), "gate", "gates")
    also = f"; not decided: {_listed(unsure)}" if unsure else ""
    match record.outcome:
        case PromotionOutcome.REFUSED:
            return f"{named} was refused: {len(failed)} of {gates} failed: {_listed(failed)}{also}."
        case PromotionOutcome.UNDECIDED if not unsure:
            return f"{named} {record.reason}."
        case PromotionOutcome.UNDECIDED:
            return (
                f"{named} waits for a person: {len(unsure)} of {gates} could not decide: {_listed(unsure)}."
            )
        case _:
            against = f"champion {record.from_version}" if record.from_version else "no champion"
            return (
                f"{named} was {record.outcome.value.replace('_', ' ')}: all {gates} passed against {against}."
            )


def next_command(record: PromotionRecord, site: Site) -> str:
    """Return what a person runs next about a judged candidate."""
    if record.outcome is PromotionOutcome.PROMOTED or record.shadow:
        return site.command("status")
    return promote_command(site, record.version, refused=record.outcome is PromotionOutcome.REFUSED)


def worst_first(gates: tuple[GateResult, ...]) -> list[GateResult]:
    """Return failures first and passes last, each in the order of the gates."""
    return sorted(gates, key=lambda gate: _ORDER.index(gate.verdict))


def shown_slices(findings: tuple[SliceFinding, ...]) -> tuple[SliceFinding, ...]:
    """Return the slices that the page has room for: failures first, values with too few rows last."""
    order = (Verdict.FAIL, Verdict.UNDECIDED, Verdict.PASS, Verdict.NOT_CHECKED)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.verdict))[:SHOWN_SLICES])


def _word(outcome: PromotionOutcome) -> str:
    return WORDS.get(outcome, outcome.value.replace("_", " "))


def _listed(gates: list[str]) -> str:
    return ", ".join(gate.replace("_", " ") for gate in gates)


def _follows(record: PromotionRecord) -> str:
    if record.outcome is PromotionOutcome.PROMOTED:
        return f"Version {record.version} serves from now on."
    serving = (
        f"Version {record.from_version} keeps serving" if record.from_version else "No version serves yet"
    )
    if record.shadow:
        return f"{serving}; the candidate scores beside it, and is promoted if it keeps to its limits."
    if record.outcome is PromotionOutcome.UNDECIDED:
        return f"{serving}, and no training is decided until a person promotes or refuses the candidate."
    return f"{serving}; a person may promote the candidate over its gates."


def _lineage(training: TrainingRecord, request: TrainingRequest) -> tuple[tuple[str, str], ...]:
    windows = [window.id for window in training.windows]
    through = windows[0] if len(windows) == 1 else f"{len(windows)}, {', '.join(windows)}"
    threshold = training.threshold
    told = {
        "Why it was trained": training.reason,
        "Windows": clipped(through, 600),
        "Rows trained on": f"{training.rows:,}",
        "Contamination guard": training.guard,
        "Detector": training.detector.name,
        "Flood mark": f"{number(threshold.value)} by {threshold.method}" if threshold else "",
        "Seed": str(request.seed),
        "World size": counted(training.world_size, "rank", "ranks"),
        "Training time": f"{training.seconds:.1f} s",
        "Request": training.request_id,
        "Champion at its training": request.champion_version or "none",
    }
    return tuple((term, text) for term, text in told.items() if text)
