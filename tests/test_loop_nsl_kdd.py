"""The whole loop on real network connections: the right decisions, without configuration."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from command import environment, floodmark, status
from processes import wait_until_nothing_is_left_of

FIRST_THREE = ["2026-01-05", "2026-01-06", "2026-01-07"]
BEFORE_DRIFT = ["2026-01-08", "2026-01-09", "2026-01-10"]
FIRST_DRIFT = ["2026-01-11", "2026-01-12"]

LOAD_CHAMPION = """
import sys
for name in ("tensorflow", "keras", "horovod"):
    sys.modules[name] = None  # importing it raises
import mlflow, pandas, pickle
def refuse(*_, **__): raise AssertionError("a pickle was loaded")
pickle.load = pickle.loads = pickle.Unpickler = refuse
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/floodmark@champion")
rows = pandas.read_parquet(sys.argv[2])
scored = model.predict(rows)
assert list(scored.columns) == ["anomaly_score", "threshold", "is_anomaly"], scored.columns
assert len(scored) == len(rows)
assert str(scored["anomaly_score"].dtype) == "float64" and str(scored["is_anomaly"].dtype) == "bool"
assert ((scored["anomaly_score"] > scored["threshold"]) == scored["is_anomaly"]).all()
print(int(scored["is_anomaly"].sum()), repr(float(scored["threshold"].iloc[0])))
"""


@pytest.fixture(scope="module")
def stream(shared_data: Path) -> Path:
    return shared_data / "nsl-kdd" / "stream"


@pytest.fixture(scope="module")
def home(stream: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home after one run over all twelve days."""
    home = tmp_path_factory.mktemp("nsl-kdd") / "home"
    columns = ["--time-column", "event_time", "--label-column", "label"]
    done = floodmark("run", stream, "--home", home, *columns, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return home


@pytest.fixture(scope="module")
def state(home: Path) -> dict[str, Any]:
    return status(home)


def windows(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {window["id"]: window for window in state["windows"]}


def test_the_first_three_days_train_the_first_model_and_gates_judge_it(state: dict[str, Any]) -> None:
    taken = windows(state)
    assert [taken[day]["outcome"] for day in FIRST_THREE] == ["bootstrap"] * 3
    first = state["trainings"][0]
    assert (first["outcome"], first["world_size"], first["version"]) == ("registered", 2, "1")
    promotion = state["promotions"][0]
    assert (promotion["from"], promotion["by"], promotion["outcome"]) == (None, "gates", "promoted")
    assert {gate["gate"] for gate in promotion["gates"]} == {
        "clean_load",
        "cost",
        "finite",
        "alert_rate",
        "injected_anomalies",
        "better_than_baseline",
    }
    assert all(gate["verdict"] == "pass" for gate in promotion["gates"])


def test_each_verdict_has_a_page_in_the_store_and_in_mlflow(home: Path) -> None:
    reports = home / "reports" / "floodmark"
    assert sorted(page.name for page in reports.glob("gates-*")) == ["gates-1.html", "gates-2.html"]
    page = (reports / "gates-2.html").read_text()
    assert "Version 2 was promoted: all 6 gates passed against champion 1." in page
    assert "champion-curve" in page
    assert "labelled anomalies" in page
    assert "could not be" not in page
    assert len(list((home / "artifacts").rglob("reports/gates.html"))) == 2


def test_the_drift_is_found_on_the_day_it_happened(state: dict[str, Any]) -> None:
    taken = windows(state)
    assert [taken[day]["drift"]["status"] for day in BEFORE_DRIFT] == ["STABLE"] * 3
    drifted = [
        day for day, window in taken.items() if window["drift"] and window["drift"]["status"] == "DRIFTED"
    ]
    assert drifted[0] in FIRST_DRIFT
    assert taken[drifted[0]]["drift"]["columns"]


def test_one_retraining_follows_and_brings_the_alert_rate_back(state: dict[str, Any]) -> None:
    taken = windows(state)
    decided = [day for day, window in taken.items() if window["decision"]["retrain"]]
    assert decided[0] == FIRST_THREE[-1]
    assert decided[1] in FIRST_DRIFT
    retraining = state["trainings"][1]
    assert (retraining["outcome"], retraining["world_size"]) == ("registered", 2)

    target = state["champion"]["target_alert_rate"]
    before = [taken[day]["alert_rate"] / target for day in FIRST_DRIFT]
    after = [
        window["alert_rate"] / target
        for day, window in taken.items()
        if day > FIRST_DRIFT[-1] and window["champion_version"] != "1"
    ]
    assert len(after) == 4
    assert all(1 / 3 <= ratio <= 3 for ratio in after), after
    assert min(before) > 1.5, before
    assert max(before) > 2, before
    assert sum(before) / len(before) > 2 * sum(after) / len(after), (before, after)


def test_champion_and_previous_are_the_last_two_promotions(state: dict[str, Any]) -> None:
    promoted = [
        promotion["version"] for promotion in state["promotions"] if promotion["outcome"] == "promoted"
    ]
    assert state["champion"]["version"] == promoted[-1]
    assert state["previous"]["version"] == promoted[-2]
    assert state["challenger"] is None
    assert state["champion"]["training_rows"] > 0
    assert state["champion"]["world_size"] == 2


def test_a_second_run_finds_nothing_to_do_and_says_so(
    home: Path, stream: Path, state: dict[str, Any]
) -> None:
    columns = ["--time-column", "event_time", "--label-column", "label"]
    done = floodmark("run", stream, "--home", home, *columns, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    assert "nothing to do: all 12 windows were taken before" in done.stdout
    assert status(home) == state


def test_plain_mlflow_loads_the_champion_without_horovod_or_pickle(
    home: Path, stream: Path, state: dict[str, Any], tmp_path: Path
) -> None:
    arguments = [f"sqlite:///{home}/mlflow.db", stream / "2026-01-16.parquet"]
    done = subprocess.run(
        [sys.executable, "-c", LOAD_CHAMPION, *map(str, arguments)],
        cwd=tmp_path,
        env=environment({"MLFLOW_DISABLE_TELEMETRY": "true"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, threshold = done.stdout.split()
    assert float(threshold) == state["champion"]["threshold"]


def test_prefect_knows_the_runs_and_the_events(home: Path, state: dict[str, Any]) -> None:
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        finished = database.execute("SELECT name FROM flow_run WHERE state_name = 'Completed'")
        runs = {name for (name,) in finished}
        emitted = database.execute("SELECT event, payload FROM events ORDER BY occurred")
        events = [(event, json.loads(payload)) for event, payload in emitted if "floodmark" in event]
        artifacts = list(database.execute("SELECT description FROM artifact WHERE key = 'gate-report'"))
    assert {f"monitor {window['id']}" for window in state["windows"]} <= runs
    assert {"judge version 1", "judge version 2", "settle version 2"} <= runs
    assert len(artifacts) == 2
    drifted = [payload["window"] for event, payload in events if event == "floodmark.drift.detected"]
    assert drifted == [
        window["id"]
        for window in state["windows"]
        if window["drift"] and window["drift"]["status"] == "DRIFTED"
    ]
    promoted = [payload["version"] for event, payload in events if event == "floodmark.model.promoted"]
    assert promoted == ["1", "2"]


def test_a_person_rolls_back_and_promotes_again(home: Path, state: dict[str, Any]) -> None:
    where: list[str | Path] = ["--home", home]
    done = floodmark("rollback", "--reason", "too many alerts", *where, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    rolled_back = status(home)
    assert (rolled_back["champion"]["version"], rolled_back["previous"]["version"]) == ("1", "2")
    assert rolled_back["promotions"][-1]["outcome"] == "rolled_back"
    assert rolled_back["promotions"][-1]["by"] == "person"
    assert champion_alias(home) == "1"

    done = floodmark("promote", "2", "--reason", "it was right", *where, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    assert status(home)["champion"] == state["champion"]
    assert champion_alias(home) == "2"
    told = floodmark("history", *where, cwd=home.parent).stdout.splitlines()
    assert [line.split("by ")[1].split(":")[0] for line in told] == ["gates", "gates", "person", "person"]
    at_start = floodmark("history", "--at", "2020-01-01T00:00:00", *where, cwd=home.parent).stdout
    assert "there was no champion" in at_start


def champion_alias(home: Path) -> str:
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        query = "SELECT version FROM registered_model_aliases WHERE alias = 'champion'"
        ((version,),) = database.execute(query)
    return str(version)


def test_no_process_is_left(home: Path) -> None:
    wait_until_nothing_is_left_of(home)
