"""The page of a candidate's gates: what it says, what it draws, and how it looks without a network."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts import training_request
from flows.gate_report import with_pictures
from histories import judged, trained
from monitoring.alerts import Site
from monitoring.gate_page import GatePage, gate_page, verdict_sentence
from monitoring.gate_pictures import curves, model_pictures
from monitoring.records import PromotionRecord
from training.evaluate import average_precision
from training.gate_evidence import Evidence, GateLimits
from training.gates import run_gates
from training.promotion import decide_promotion
from training.types import GateResult, PromotionOutcome, Verdict

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
SITE = Site(model="pumps", home="/a home", pages="/a home/reports", source="s3://plant/pumps")
HOSTILE = "</script><img src=https://evil.example/x onerror=alert(1)>"
LONG = "a_name_that_does_not_end_" * 30
LIMITS = GateLimits(bootstrap_repetitions=100, slices=(HOSTILE, LONG))
REFUSED, UNDECIDED = PromotionOutcome.REFUSED, PromotionOutcome.UNDECIDED
ROWS, MADE = 1200, 90


def evidence(*, champion: bool = True, labelled: bool = True) -> Evidence:
    """Return evidence whose slices have hostile and endless names, and one of whose values is blind."""
    generator = np.random.default_rng(0)
    judge, injected = generator.normal(size=ROWS), generator.normal(4, 1, size=MADE)
    labels = judge >= np.sort(judge)[-40]
    judge, plants = judge + 3 * labels, np.array([HOSTILE, LONG, None] * ROWS, dtype=object)
    given: dict[str, Any] = {
        "champion_version": "1",
        "champion_threshold": 20.0,
        "champion_judge_scores": 10 * (judge + generator.normal(0, 0.3, size=ROWS)),
        "champion_injected_scores": 10 * (injected + generator.normal(0, 0.3, size=MADE)),
    }
    return Evidence(
        target_alert_rate=0.02,
        threshold=2.0,
        clean_load_difference=1e-7,
        clean_load_error=None,
        microseconds_per_row=20.0,
        artifact_bytes=1_000_000,
        judge_scores=judge,
        judge_labels=labels if labelled else None,
        injected_scores=injected - 5 * (plants[:MADE] == HOSTILE),
        injected_kinds=np.array(["spike", "shift"] * (MADE // 2)),
        judge_slices={HOSTILE: plants[:ROWS], LONG: np.full(ROWS, "only", dtype=object)},
        injected_slices={HOSTILE: plants[:MADE], LONG: np.full(MADE, "only", dtype=object)},
        **(given if champion else {}),
    )


def record_of(found: Evidence) -> PromotionRecord:
    gates = run_gates(found, LIMITS)
    decision = decide_promotion(gates, "1", "1", demanded=[gate.gate for gate in gates])
    return replace(judged("2", decision.outcome, found.champion_version), gates=gates)


def page_of(found: Evidence) -> GatePage:
    training = replace(trained("2", "2026-01-05", HOSTILE), reason=HOSTILE, guard="3 rows are left out")
    words = gate_page(record_of(found), training, training_request(), SITE, now=NOW)
    return with_pictures(words, found, LIMITS)


def result(gate: str, verdict: Verdict) -> GateResult:
    return GateResult(gate=gate, verdict=verdict, observed=None, bound=None, reason=f"reason of {gate}")


@pytest.mark.parametrize(
    ("outcome", "from_version", "verdicts", "sentence", "command"),
    [
        (
            PromotionOutcome.PROMOTED,
            None,
            {"finite": Verdict.PASS, "cost": Verdict.PASS},
            "Version 2 was promoted: all 2 gates passed against no champion.",
            "floodmark status",
        ),
        (
            REFUSED,
            "1",
            {"finite": Verdict.PASS, "alert_rate": Verdict.FAIL, "cost": Verdict.NOT_CHECKED},
            "Version 2 was refused: 1 of 3 gates failed: alert rate; not decided: cost.",
            "floodmark promote 2 --force --reason TEXT",
        ),
        (
            UNDECIDED,
            "1",
            {"finite": Verdict.PASS, "slices": Verdict.UNDECIDED},
            "Version 2 waits for a person: 1 of 2 gates could not decide: slices.",
            "floodmark promote 2 --reason TEXT",
        ),
    ],
)
def test_the_verdict_in_a_sentence_and_the_next_command(
    outcome: PromotionOutcome,
    from_version: str | None,
    verdicts: dict[str, Verdict],
    sentence: str,
    command: str,
) -> None:
    gates = tuple(result(gate, verdict) for gate, verdict in verdicts.items())
    record = replace(judged("2", outcome, from_version), gates=gates)
    page = gate_page(record, trained("2", "a"), training_request(), SITE, now=NOW)
    assert page.verdict == verdict_sentence(record) == sentence
    assert page.command == f"{command} --home '/a home' --model pumps"
    assert [gate.verdict for gate in page.gates][-1] == Verdict.PASS
    html = page.to_html()
    assert all(f"reason of {gate}" in html for gate in verdicts)
    assert "<svg" not in html


def test_failures_come_first_and_lineage_is_told() -> None:
    page = page_of(evidence())
    assert page.outcome == "refused"
    assert [gate.verdict for gate in page.gates] == [Verdict.FAIL, *[Verdict.PASS] * 6]
    assert page.gates[0].gate == "slices"
    assert page.slices[0].verdict is Verdict.FAIL
    lineage = dict(page.lineage)
    assert (lineage["Seed"], lineage["World size"], lineage["Request"]) == ("0", "2 ranks", "request-2")
    assert lineage["Rows trained on"] == "100"
    assert lineage["Windows"].startswith("2, 2026-01-05, ")
    assert not page.notes


def test_both_models_are_drawn_on_the_same_rows_each_with_its_own_mark() -> None:
    found = evidence(labelled=False)
    candidate, champion = model_pictures(found, "2")
    assert (candidate.threshold, champion.threshold) == (2.0, 20.0)
    assert candidate.alert_rate == pytest.approx(float((found.judge_scores > 2).mean()))
    assert [scored.kind for scored in candidate.anomalies] == ["injected"]
    drawn, told = curves(found, LIMITS)
    assert told == "90 injected anomalies and 1200 judge rows"
    assert [curve.role for curve in drawn] == ["candidate", "champion"]
    labels = np.arange(ROWS + MADE) >= ROWS
    scores = np.concatenate((found.judge_scores, found.injected_scores))
    assert drawn[0].average_precision == average_precision(labels, scores)
    alerts = scores > 2
    assert drawn[0].mark == (alerts[labels].mean(), labels[alerts].mean())
    assert drawn[0].points[-1][0] == 1.0
    assert len(drawn[0].points) <= 101


def test_labelled_anomalies_have_a_picture_of_their_own_and_a_first_model_is_drawn_alone() -> None:
    [candidate] = model_pictures(evidence(champion=False), "1")
    assert [scored.kind for scored in candidate.anomalies] == ["injected", "labelled"]
    assert candidate.anomalies[1].found == 1.0
    assert [curve.role for curve in curves(evidence(champion=False), LIMITS)[0]] == ["candidate"]


@given(
    st.sampled_from(["threshold", "judge_scores", "injected_scores", "champion_threshold", "whole"]),
    st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_what_is_not_finite_still_gives_a_page(field: str, value: float) -> None:
    found = evidence()
    if field == "whole":
        nothing = np.full(ROWS, value)
        broken = replace(found, judge_scores=nothing, injected_scores=nothing[:MADE])
    else:
        whole = getattr(found, field)
        changed: Any = value
        if isinstance(whole, np.ndarray):
            changed = whole.copy()
            changed[7] = value
        broken = replace(found, **{field: changed})
    page = page_of(broken)
    html = page.to_html()
    assert page.outcome in ("refused", "waits for a person")
    assert "NaN or infinite" in html
    assert len(page.models) == 2
    assert all("nan" not in picture for picture in re.findall(r"<svg.*?</svg>", html, re.DOTALL))


def test_no_rows_at_all_give_a_page() -> None:
    nothing = np.empty(0)
    empty = Evidence(
        target_alert_rate=0.02,
        threshold=2.0,
        clean_load_difference=None,
        clean_load_error=None,
        microseconds_per_row=None,
        artifact_bytes=None,
        judge_scores=nothing,
        judge_labels=None,
        injected_scores=nothing,
        injected_kinds=nothing.astype(str),
    )
    page = page_of(empty)
    assert page.outcome == "waits for a person"
    assert "No score is finite." in page.to_html()


def test_names_are_text_and_nothing_else() -> None:
    html = page_of(evidence()).to_html()
    assert html.startswith("<!DOCTYPE html>")
    assert "&lt;/script&gt;&lt;img" in html
    assert set(re.findall(r"<(img|script|iframe|link rel=\"(?!icon)|object)", html)) == set()
    assert len(html) < 120_000


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_in_a_browser_without_a_network(
    browser: Any,  # noqa: ANN401 - Playwright may be missing
    tmp_path: Path,
    width: int,
) -> None:
    drawn = page_of(evidence())
    (tmp_path / "page.html").write_text(drawn.to_html())
    requests: list[str] = []
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())

    assert requests == [(tmp_path / "page.html").as_uri()]
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    tables = page.locator(".table").evaluate_all("all => all.map(one => one.scrollWidth - one.clientWidth)")
    assert tables == [0, 0, 0, 0], "gates, alert rates, slices and lineage"
    assert page.locator("#verdict").inner_text() == drawn.verdict
    assert page.locator("#command").inner_text() == drawn.command
    assert page.locator("#gates tbody tr:not(.reason) th").count() == len(drawn.gates) == 7
    assert page.locator("figure.plot svg[role=img]").count() == 5, "two models, two kinds, and the curves"
    assert page.locator(".flood-mark").count() == 4
    assert page.locator("img, script").count() == 0

    curve = page.locator(".candidate-curve").bounding_box()
    mark = page.locator(".candidate-mark").bounding_box()
    assert drawn.curves[0].mark is not None
    axis = page.locator(".grid-line").first.bounding_box()
    place = axis["x"] + drawn.curves[0].mark[0] * axis["width"]
    assert mark["x"] + mark["width"] / 2 == pytest.approx(place, abs=1.5)
    assert curve["x"] >= axis["x"] - 2
    assert complaints == []
    context.close()
