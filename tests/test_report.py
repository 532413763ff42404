"""Pages through the flow `monitor`, with a real store, MLflow and Prefect server."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort

from artifacts import build_artifact, normal_rows, training_request
from flows.alerting import site_of
from flows.console import page_of as page_of_record
from flows.installation import Installation
from flows.judge import judge
from flows.monitor import monitor
from flows.pages import artifact_key
from flows.report import ScoredRows, report_window
from flows.settle import follow
from histories import judged, settled, trained
from infra.settings import Settings, load_settings
from monitoring.frames import clean_frame
from monitoring.records import PromotionRecord, WindowRecord
from monitoring.retraining import RetrainingDecision
from monitoring.verdicts import DriftStatus
from prefect_api import prefect_api
from training.parts import JUDGE_ROWS
from training.types import PromotionOutcome

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:DeprecationWarning"  # MLflow 3.17 asks SQLAlchemy 2.1 for it
)


@pytest.fixture(scope="module", autouse=True)
def _api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run a temporary Prefect server."""
    with prefect_api(tmp_path_factory.mktemp("prefect")):
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a home that has a champion, and a source of a calm, a drifted and a broken window."""
    place = tmp_path_factory.mktemp("place")
    installation = Installation(settings_of(place))
    request = training_request()
    result = build_artifact(place / "artifact", request)
    version = installation.registry.register(request, result, reason="first model")
    for record in (trained(version, "first"), judged(version), settled(version)):
        installation.ledger.append(installation.ledger.load(), record)
    rows = normal_rows(600, seed=7)
    for name, frame in {
        "line=a": rows,
        "line=b": rows.assign(level=rows["level"] + 4, pump="<b>east</b>"),
        "line=c": rows.drop(columns="flow"),
    }.items():
        (place / "incoming" / name).mkdir(parents=True)
        frame.to_parquet(place / "incoming" / name / "part-0.parquet")
    return place


def settings_of(place: Path) -> Settings:
    return load_settings(None, {"home": place / "home", "model": "pumps", "time_column": "at"})


def taken(place: Path, name: str) -> WindowRecord:
    settings = settings_of(place)
    source = Installation(settings).source(str(place / "incoming"))
    [window] = [window for window in source.windows() if window.id == name]
    return monitor(settings, str(place / "incoming"), window)


def page_of(place: Path, name: str) -> Path:
    """Return where an alert's link leads."""
    return Path(site_of(settings_of(place)).page(name))


def test_a_drifted_window_has_a_page_where_alerts_link_to_and_in_mlflow_and_prefect(place: Path) -> None:
    record = taken(place, "line=b")
    assert record.drift is not None
    assert record.drift.status is DriftStatus.DRIFTED
    page = page_of(place, "line=b").read_text()
    assert "Window line=b drifted: " in page
    assert "&lt;b&gt;east" in page
    assert page.count('<figure class="plot') == 5, "four columns and the scores"
    assert "flood mark" in page
    assert 'href="./line%3Db-evidently.html"' in page
    assert "could not" not in page
    assert "Drift in column" in (page_of(place, "line=b").parent / "line=b-evidently.html").read_text()
    [attached] = (place / "home" / "artifacts").rglob("windows/line=b/page.html")
    assert "stored as reports/pumps/line=b-evidently.html" in attached.read_text()
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=["window-pumps"]))
        [artifact] = client.read_artifacts(artifact_filter=wanted)
    assert artifact.data == f"[window line=b: drifted]({page_of(place, 'line=b').as_uri()})"
    assert (artifact.description or "").startswith("Window line=b drifted: ")


def test_a_broken_window_has_a_page_without_pictures_and_a_calm_one_has_none(place: Path) -> None:
    assert taken(place, "line=a").has_page is False
    assert not page_of(place, "line=a").exists()
    assert taken(place, "line=c").outcome == "quarantined"
    page = page_of(place, "line=c").read_text()
    assert "set aside, neither scored nor judged: the feature &#39;flow&#39; is missing" in page
    assert f"floodmark run {place / 'incoming'} --time-column at" in re.sub("<[^>]*>", "", page)
    assert "<svg" not in page


def test_whatever_fails_the_window_counts_and_the_page_says_what_is_missing(place: Path) -> None:
    settings = settings_of(place)
    installation = Installation(settings)
    history = installation.ledger.load()
    champion = installation.champion(str(history.champion))
    rows = clean_frame(normal_rows(300, seed=9), champion.schema)
    drifted = taken(place, "line=b")
    decision = RetrainingDecision(retrain=True, reason="2 of 3")
    record = WindowRecord(
        window=drifted.window,
        digest="",
        rows=300,
        outcome="scored",
        reason="valid",
        champion_version="1",
        alerts=3,
        drift=drifted.drift,
        decision=decision,
    )
    scored = ScoredRows(rows=rows.drop(columns="level"), scores=np.ones(300), champion=champion)
    database = place / "home" / "mlflow.db"
    kept = database.read_bytes()

    @flow
    def report(to: Installation) -> WindowRecord:
        return report_window(to, "source", history, record, scored)

    try:
        database.write_bytes(b"not a database" * 1_000)
        assert report(installation) is record
    finally:
        database.write_bytes(kept)
    page = page_of(place, "line=b").read_text()
    assert "A retraining was decided: 2 of 3." in page
    for what in ("The columns could not", "Evidently&#39;s report could not", "This page could not"):
        assert what in page

    (place / "a file").write_text("")
    nowhere = Installation(settings.model_copy(update={"store": str(place / "a file")}))
    assert report(nowhere) is record


def judged_record(place: Path, version: str, **gates: object) -> PromotionRecord:
    """Judge a version of the linear detector on rows of its own."""
    settings = load_settings(None, {"home": place, "model": "pumps", "time_column": "at", "gates": gates})
    installation = Installation(settings)
    request = training_request(seed=int(version))
    made = build_artifact(place / f"artifact-{version}", request, rows=1_000)
    assert installation.registry.register(request, made, reason="test") == version
    rows = installation.training_folder(request.id) / JUDGE_ROWS
    rows.parent.mkdir(parents=True)
    normal_rows(800, seed=50).assign(line=["a", "<b>b</b>"] * 400).to_parquet(rows, index=False)
    training = replace(trained(version, "first"), request_id=request.id)
    record = judge(settings, "source", training)
    for entry in (training, record, settled(version)):
        installation.ledger.append(installation.ledger.load(), entry)
    follow(installation, record)
    return record


def gate_artifact() -> str:
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=["gates-pumps"]))
        newest = client.read_artifacts(artifact_filter=wanted, sort=ArtifactSort.CREATED_DESC)[0]
    return f"{newest.data} {newest.description}"


def test_a_judged_candidate_has_a_page_in_the_store_in_mlflow_and_in_prefect(tmp_path: Path) -> None:
    first = judged_record(tmp_path, "1", slices=["line"], injected_recall=0.01)
    assert [gate.verdict.value for gate in first.gates] == ["pass"] * 7, first.reason
    page = (tmp_path / "reports" / "pumps" / "gates-1.html").read_text()
    assert "Version 1 was promoted: all 7 gates passed against no champion." in page
    assert "line &#39;&lt;b&gt;b&lt;/b&gt;&#39;" in page
    assert "champion-curve" not in page.split("</style>")[1]
    assert "could not be" not in page
    told = gate_artifact()
    assert told.startswith("[version 1: promoted](file://")
    assert "gates-1.html) Version 1 was promoted: all 7 gates" in told

    refused = judged_record(tmp_path, "2", max_microseconds_per_row=1e-6)
    assert refused.outcome is PromotionOutcome.REFUSED
    assert "slices" not in {gate.gate for gate in refused.gates}
    page = (tmp_path / "reports" / "pumps" / "gates-2.html").read_text()
    assert "Version 2 was refused: 1 of 6 gates failed: cost" in page
    assert "champion-curve" in page.split("</style>")[1]
    assert gate_artifact().startswith("[version 2: refused](file://")
    attached = [found.read_text() for found in (tmp_path / "artifacts").rglob("reports/gates.html")]
    assert len(attached) == 2
    assert page in attached
    assert page_of_record(refused) == ("version 2", "gates-2")
    assert page_of_record(first) is None, "of what was promoted, the console prints no page"


def test_a_verdict_holds_without_its_page(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("no folder")
    record = judged_record(tmp_path, "1")
    assert record.gates
    assert [path.name for path in (tmp_path / "artifacts").rglob("gates.html")] == ["gates.html"]


@pytest.mark.parametrize(("model", "key"), [("Pump_A.2", "window-pump-a-2"), ("--", "window-")])
def test_keys_are_what_prefect_allows(model: str, key: str) -> None:
    assert artifact_key("window", model) == key.rstrip("-")


def test_a_page_survives_text_that_is_no_unicode(tmp_path: Path) -> None:
    installation = Installation(load_settings(None, {"home": tmp_path, "model": "pumps"}))
    installation.write_page("a", "lone \ud800 surrogate")
    assert (tmp_path / "reports" / "pumps" / "a.html").read_text() == "lone ? surrogate"
