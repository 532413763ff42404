"""A window's page for people, where something happened: drawn, stored, and linked from Prefect and MLflow.

Nothing here loses a window. What cannot be drawn, rendered or attached is said on the page itself, and a
page that cannot be stored is said in the log of the flow run.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote

import numpy as np
import pandas as pd
from prefect import get_run_logger

from flows.alerting import site_of
from flows.installation import Champion, Installation
from flows.pages import link_page, noted
from monitoring.evidently_drift import report_page
from monitoring.history import History
from monitoring.page import WindowPage, window_page
from monitoring.pictures import column_pictures, furthest_columns, missing_rates, score_picture
from monitoring.records import WindowRecord
from monitoring.verdicts import DriftVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """What was judged: the rows of a window, their scores (rows,), and by which champion."""

    rows: pd.DataFrame
    scores: np.ndarray
    champion: Champion


def report_window(
    installation: Installation,
    source: str,
    history: History,
    record: WindowRecord,
    scored: ScoredRows | None = None,
) -> WindowRecord:
    """Write the page of a window in which something happened; return its record unchanged, whatever fails."""
    if record.has_page:
        try:
            write_page(installation, source, history, record, scored)
        except Exception as error:  # noqa: BLE001 - a page is for people to look at; the window counts without it
            get_run_logger().warning("window %s has no page: %s", record.window.id, error)
    return record


def write_page(
    installation: Installation,
    source: str,
    history: History,
    record: WindowRecord,
    scored: ScoredRows | None,
) -> None:
    """Draw a window's page, attach it to the champion's run, store it, and link it from this flow run."""
    settings, window = installation.settings, record.window.id
    target = scored.champion.scorer.threshold.target_alert_rate if scored else None
    site = site_of(settings, source)
    page = window_page(record, history, site, target_rate=target, now=datetime.now(UTC))
    notes: list[str] = []
    if scored is not None and record.drift is not None:
        with noted(notes, "The columns could not be drawn"):
            page = with_columns(page, scored, record.drift, settings.training.seed)
        with noted(notes, "The scores could not be drawn"):
            page = with_scores(page, scored)
        with noted(notes, "Evidently's report could not be rendered"):
            page = with_evidently(page, scored, record.drift, installation)
    page = replace(page, notes=tuple(notes))
    if page.version is not None:
        with noted(notes, "This page could not be attached to the champion's MLflow run"):
            installation.registry.log_window_page(page.version, window, _alone(page).to_html())
    installation.write_page(window, replace(page, notes=tuple(notes)).to_html())
    link_page(
        "window", site, window, text=f"window {window}: {page.outcome}", told=f"{page.verdict} {page.follows}"
    )


def with_columns(page: WindowPage, scored: ScoredRows, drift: DriftVerdict, seed: int) -> WindowPage:
    """Draw the columns that moved, and the missing rates that did."""
    sides = scored.champion.reference.rows, scored.rows
    schema = scored.champion.schema
    return replace(
        page,
        columns=column_pictures(*sides, schema, drift, seed=seed),
        missing=missing_rates(*sides, schema),
    )


def with_scores(page: WindowPage, scored: ScoredRows) -> WindowPage:
    """Draw the scores beside those of rows that the champion was not trained on."""
    threshold = scored.champion.scorer.threshold.value
    return replace(page, scores=score_picture(scored.champion.reference.scores, scored.scores, threshold))


def with_evidently(
    page: WindowPage, scored: ScoredRows, drift: DriftVerdict, installation: Installation
) -> WindowPage:
    """Store Evidently's page of the same columns beside ours, and link it."""
    champion, seed = scored.champion, installation.settings.training.seed
    rendered = report_page(
        champion.reference.rows, scored.rows, champion.schema, furthest_columns(drift), seed=seed
    )
    if rendered is None:
        return page
    installation.write_page(f"{page.window}-evidently", rendered)
    name = page.window.rsplit("/", 1)[-1]
    return replace(page, evidently=f"./{quote(name)}-evidently.html")


def _alone(page: WindowPage) -> WindowPage:
    """Return the page for a place where Evidently's does not lie beside it."""
    if page.evidently is None:
        return page
    told = f"Evidently's report is stored as reports/{page.model}/{page.window}-evidently.html."
    return replace(page, evidently=None, notes=(*page.notes, told))
