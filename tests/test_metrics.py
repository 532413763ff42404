"""Metrics of a ledger: values, Prometheus' conventions, the ways out, rules and dashboard."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families

from flows.metrics import write_textfile
from histories import START, bootstrap, history, judged, quarantined, scored, trained
from infra.settings import load_settings
from monitoring.history import History
from monitoring.metrics import STEPS, exposition, registry_of
from monitoring.next_step import Judge, Notify, Settle, TakeWindow, Train
from monitoring.records import ClaimRecord, FailureRecord, MuteRecord, Record
from monitoring.verdicts import DriftStatus, DriftTest, DriftVerdict, ScoreSummary
from training.errors import ConfigurationError, RetryableError

FILES = Path(__file__).resolve().parents[1] / "infra"
RULES = FILES / "prometheus" / "floodmark.rules.yaml"
DASHBOARD = FILES / "grafana" / "floodmark.json"
FAILED = FailureRecord(step="training on a, b", error="OSError: disk full")
EVERYTHING: tuple[Record, ...] = (
    bootstrap("a"),
    trained("1", "a"),
    judged("1"),
    replace(
        scored("b", DriftStatus.DRIFTED),
        alerts=20,
        rows=1_000,
        scores=ScoreSummary(quantiles={"0.5": 1.5, "1": 9.0}),
        drift=DriftVerdict(
            status=DriftStatus.DRIFTED,
            share=0.25,
            reason="because",
            tests=(
                DriftTest(test="joint", status=DriftStatus.DRIFTED, statistic=0.2, bound=0.1, reason="so"),
                DriftTest(test="scores", status=DriftStatus.STABLE, statistic=0.1, bound=0.2, reason="so"),
            ),
        ),
    ),
    quarantined("c"),
    FAILED,
    FAILED,
    MuteRecord(until=START.replace(year=START.year + 100), reason="pool is repaired"),
)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """Every sample by its name and its labels except the model's."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model") == "pumps"
            found[sample.name, frozenset(labels.items())] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """A metric's value; None where it is absent."""
    return samples.get((f"floodmark_{name}", frozenset(labels.items())))


def promtool() -> str:
    """Prometheus' own checker; its absence fails in CI and skips elsewhere."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    return found


def test_a_ledger_in_figures() -> None:
    past = history(*EVERYTHING)
    samples = parsed(exposition(past, "pumps"))
    expected: dict[tuple[str, *tuple[tuple[str, str], ...]], float] = {
        ("windows_total", ("outcome", "scored")): 1,
        ("windows_total", ("outcome", "quarantined")): 1,
        ("windows_total", ("outcome", "skipped")): 0,
        ("drift_verdicts_total", ("status", "DRIFTED")): 1,
        ("alert_ratio",): 0.02,
        ("alerts_total",): 20,
        ("anomaly_score", ("probability", "0.5")): 1.5,
        ("drifted_columns_ratio",): 0.25,
        ("drift_status", ("status", "DRIFTED")): 1,
        ("drift_status", ("status", "STABLE")): 0,
        ("drift_test_drifted", ("test", "joint")): 1,
        ("drift_test_drifted", ("test", "scores")): 0,
        ("champion_info", ("version", "1")): 1,
        ("model_age_windows",): 1,
        ("trainings_total", ("outcome", "registered")): 1,
        ("training_duration_seconds_count",): 1,
        ("promotions_total", ("outcome", "promoted")): 1,
        ("failures_total", ("step", "training")): 2,
        ("failures_total", ("step", "window")): 0,
        ("open_incidents", ("kind", "drift")): 1,
        ("open_incidents", ("kind", "data")): 1,
        ("open_incidents", ("kind", "step")): 1,
        ("open_incidents", ("kind", "candidate")): 0,
        ("last_window_timestamp_seconds",): past.entries[4].at.timestamp(),
        ("last_success_timestamp_seconds",): past.entries[4].at.timestamp(),
        ("last_promotion_timestamp_seconds",): past.entries[2].at.timestamp(),
        ("model_trained_timestamp_seconds",): past.entries[1].at.timestamp(),
    }
    for (name, *labels), wanted in expected.items():
        assert value(samples, name, **dict(labels)) == pytest.approx(wanted), name
    assert value(samples, "mute_end_timestamp_seconds") is not None


@pytest.mark.parametrize("records", [(), (bootstrap("a"),), (quarantined("a"), FAILED)])
def test_what_is_not_known_is_absent(records: tuple[Record, ...]) -> None:
    samples = parsed(exposition(history(*records), "pumps"))
    for name in (
        "alert_ratio",
        "window_rows",
        "drifted_columns_ratio",
        "threshold",
        "model_age_windows",
        "last_promotion_timestamp_seconds",
        "mute_end_timestamp_seconds",
    ):
        assert value(samples, name) is None
    assert all(number == number for number in samples.values())  # noqa: PLR0124 - none is NaN


def test_the_kinds_of_steps_are_those_that_the_loop_takes() -> None:
    said = {
        cls.__name__: cls.__str__.__code__.co_consts for cls in (TakeWindow, Train, Judge, Settle, Notify)
    }
    for kind in STEPS:
        assert any(
            isinstance(text, str) and text.startswith(f"{kind} ") for texts in said.values() for text in texts
        ), kind
    assert len(said) == len(STEPS)


RECORDS = st.lists(
    st.sampled_from([*EVERYTHING, scored("d"), trained(None, "b"), ClaimRecord(step="window d")]), max_size=12
)


@settings(deadline=None, max_examples=50)
@given(RECORDS)
def test_any_ledger_is_valid_exposition_and_totals_only_grow(records: list[Record]) -> None:
    before = parsed(exposition(history(*records[:-1]), "pumps"))
    after = parsed(exposition(history(*records), "pumps"))
    for sample, number in before.items():
        if sample[0].endswith("_total"):
            assert after[sample] >= number


def test_promtool_finds_nothing_to_say_about_the_metrics() -> None:
    for records in ((), EVERYTHING):
        checked = subprocess.run(
            [promtool(), "check", "metrics"],
            input=exposition(history(*records), "pumps"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "words", [("check", "rules", RULES.name), ("test", "rules", "floodmark.rules.test.yaml")]
)
def test_promtool_passes_the_rules(words: tuple[str, ...]) -> None:
    run = subprocess.run([promtool(), *words], cwd=RULES.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=["rules", "dashboard"])
def test_rules_and_dashboard_ask_for_metrics_that_exist(file: Path) -> None:
    emitted = {name for name, _ in parsed(exposition(history(*EVERYTHING), "pumps"))} | {
        "floodmark_threshold",  # of trainings whose threshold is known
        "floodmark_target_alert_ratio",
    }
    asked = set(re.findall(r"\bfloodmark_\w+", file.read_text()))
    assert asked
    assert asked <= emitted


def test_every_rule_is_tested() -> None:
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    cases = (RULES.parent / "floodmark.rules.test.yaml").read_text()
    assert alerts == set(re.findall(r"alertname: (\w+)", cases))


def test_the_dashboard_has_panels_that_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(panels) == len(set(places)) == len({panel["id"] for panel in panels})
    assert all(panel["targets"] for panel in panels)


def test_the_textfile_is_whole_or_the_last_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "floodmark.prom"
    configured = load_settings(None, {"model": "pumps", "metrics": {"textfile": path}})
    past = history(*EVERYTHING)
    write_textfile(configured, past)
    assert path.read_text() == exposition(past, "pumps")
    assert list(tmp_path.iterdir()) == [path]

    gone = replace(configured.metrics, textfile=tmp_path / "no folder" / "floodmark.prom")
    write_textfile(configured.model_copy(update={"metrics": gone}), past)
    assert "warning: the metrics were not written to" in capsys.readouterr().err


def test_a_textfile_that_node_exporter_would_not_read_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"end in \.prom"):
        load_settings(None, {"metrics": {"textfile": "metrics.txt"}})


@contextmanager
def endpoint(load: Callable[[], History]) -> Iterator[str]:
    """The endpoint that `floodmark metrics --serve` opens, on a free port of the loopback."""
    server, thread = start_http_server(0, "127.0.0.1", registry_of(load, "pumps"))
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        assert isinstance(thread, threading.Thread)
        thread.join()


def test_each_scrape_reads_the_ledger_anew() -> None:
    ledgers = iter([history(), history(*EVERYTHING)])
    with endpoint(lambda: next(ledgers)) as url:
        answers = [httpx.get(url, timeout=10).text for _ in range(2)]
    assert [value(parsed(text), "windows_total", outcome="scored") for text in answers] == [0, 1]


def test_a_ledger_that_cannot_be_read_is_an_error_and_no_empty_page() -> None:
    def broken() -> History:
        raise RetryableError("the store does not answer")

    with endpoint(broken) as url:
        assert httpx.get(url, timeout=10).status_code == httpx.codes.INTERNAL_SERVER_ERROR
