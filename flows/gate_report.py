"""A judged candidate's page for people: drawn, stored, and linked from Prefect and MLflow.

Nothing here decides on a promotion. What cannot be drawn or attached is said on the page itself, and a page
that cannot be stored is said in the log of the flow run.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from prefect import get_run_logger

from flows.alerting import site_of
from flows.installation import Installation
from flows.pages import link_page, noted
from monitoring.gate_page import GatePage, gate_page, shown_slices
from monitoring.gate_pictures import curves, model_pictures
from monitoring.records import PromotionRecord, TrainingRecord
from training.gate_evidence import Evidence, GateLimits
from training.slice_findings import slice_findings
from training.types import TrainingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a page is about: the verdict, the training and its request, and what the gates looked at."""

    record: PromotionRecord
    training: TrainingRecord
    request: TrainingRequest
    evidence: Evidence


def report_judged(installation: Installation, source: str, judged: Judged) -> PromotionRecord:
    """Write the page of a judged candidate; return its record unchanged, whatever fails."""
    try:
        write_page(installation, source, judged)
    except Exception as error:  # noqa: BLE001 - a page is for people to look at; the verdict holds without it
        get_run_logger().warning("version %s has no page: %s", judged.record.version, error)
    return judged.record


def write_page(installation: Installation, source: str, judged: Judged) -> None:
    """Draw a candidate's page, attach it to its version's run, store it, and link it from this flow run."""
    record = judged.record
    if record.page is None:
        return
    settings, version = installation.settings, record.version
    site = site_of(settings, source)
    page = gate_page(record, judged.training, judged.request, site, now=datetime.now(UTC))
    page = with_pictures(page, judged.evidence, settings.gates)
    notes = list(page.notes)
    with noted(notes, "This page could not be attached to the version's MLflow run"):
        installation.registry.log_report(version, "gates.html", page.to_html())
    installation.write_page(record.page, replace(page, notes=tuple(notes)).to_html())
    text = f"version {version}: {page.outcome}"
    link_page("gates", site, record.page, text=text, told=f"{page.verdict} {page.follows}")


def with_pictures(page: GatePage, evidence: Evidence, limits: GateLimits) -> GatePage:
    """Draw the scores, the curves and what was seen within slices; note what cannot be drawn."""
    notes: list[str] = []
    with noted(notes, "The scores could not be drawn"):
        page = replace(page, models=model_pictures(evidence, page.version))
    with noted(notes, "Precision and recall could not be drawn"):
        drawn, ranked = curves(evidence, limits)
        page = replace(page, curves=drawn, ranked=ranked)
    with noted(notes, "Slices could not be looked into"):
        findings = slice_findings(evidence, limits)
        page = replace(page, slices=shown_slices(findings), all_slices=len(findings))
    return replace(page, notes=(*page.notes, *notes))
