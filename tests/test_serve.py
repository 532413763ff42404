"""`floodmark serve`, as its clients see it: a real server, whose registry is moved and broken under it."""

import io
import json
import os
import pickle
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from artifacts import normal_rows
from command import floodmark
from infra.registry import Registry
from infra.score_request import ARROW_STREAM, MAX_BODY_BYTES, MAX_ROWS, PARQUET
from monitoring.frames import clean_frame
from monitoring.plain_columns import encode_columns
from scorer_server import Server, copied, registered_home, serving
from training import artifact
from training.errors import InvalidWindowError
from training.scorer import Scorer

# isort: split
from mlflow import MlflowClient

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

FEATURES = ["pressure", "flow", "level", "pump"]
ROW: dict[str, Any] = {"pressure": 200, "flow": 10.5, "level": 5, "pump": "north"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return registered_home(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def scorers(home: Path) -> dict[str, Scorer]:
    registry = Registry.open(home, "floodmark")
    return {version: Scorer.load(registry.artifact_folder(version), threads=1) for version in ("1", "2")}


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    """Version 1, for the tests that move nothing."""
    with serving(home) as running:
        yield running


@pytest.fixture
def moved(home: Path, tmp_path: Path) -> Iterator[tuple[Server, Registry]]:
    """Version 1, and a registry that the test may break."""
    registry = copied(home, tmp_path / "home")
    with serving(tmp_path / "home") as running:
        yield running, registry


def rows_of(count: int, seed: int = 5) -> pd.DataFrame:
    return normal_rows(count, seed=seed)[FEATURES]


def as_objects(rows: pd.DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(rows.to_json(orient="records", double_precision=15))
    return found


def as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return bytes(sink.getvalue())


def as_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_every_way_to_send_rows_gets_the_scores_of_the_model(
    server: Server, scorers: dict[str, Scorer]
) -> None:
    rows = rows_of(300).assign(note="ignored")
    sent = pd.DataFrame(as_objects(rows))  # what JSON keeps of a float
    expected = scorers["1"].score(clean_frame(sent, scorers["1"].schema))
    columns = {name: [row[name] for row in as_objects(rows)] for name in reversed(rows.columns)}
    table = pa.Table.from_pandas(sent)
    answers = [
        server.client.post("/score", json={"rows": as_objects(rows)}),
        server.client.post("/score", json={"columns": columns}),
        server.client.post("/score", content=as_stream(table), headers={"content-type": ARROW_STREAM}),
        server.client.post("/score", content=as_parquet(table), headers={"content-type": PARQUET}),
    ]
    threshold = scorers["1"].threshold.value
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "model": "floodmark",
            "model_version": "1",
            "threshold": threshold,
            "anomaly_score": expected.tolist(),
            "is_anomaly": (expected > threshold).tolist(),
        }
    assert 0 < np.mean(expected > threshold) < 0.5


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["north", "south", "elsewhere", "", "1"]),
    st.just([1]),
)
PUMPS = st.one_of(st.none(), st.sampled_from(["north", "south", "elsewhere", ""]))
NUMBERS = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))


@given(
    st.lists(st.tuples(NUMBERS, PUMPS), min_size=1, max_size=6).flatmap(
        lambda plain: st.tuples(st.just(plain), st.one_of(st.none(), st.tuples(CELLS, CELLS)))
    )
)
def test_lists_mean_what_frames_mean_to_the_bit(
    scorers: dict[str, Scorer], drawn: tuple[list[tuple[Any, Any]], tuple[Any, Any] | None]
) -> None:
    plain, odd = drawn
    cells = plain if odd is None else [*plain, odd]
    columns = {
        "pressure": [number for number, _ in cells],
        "flow": [1.0] * len(cells),
        "level": [2] * len(cells),
        "pump": [pump for _, pump in cells],
    }
    scorer = scorers["1"]
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    try:
        expected = scorer.preprocessing.transform(clean_frame(frame, scorer.schema))
    except InvalidWindowError as error:
        said = str(error)
    else:
        np.testing.assert_array_equal(encode_columns(len(cells), columns, scorer), expected)
        return
    with pytest.raises(InvalidWindowError, match=f"^{re.escape(said)}$"):
        encode_columns(len(cells), columns, scorer)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


BAD: dict[str, tuple[object, int, str]] = {
    "no JSON": (b"{", 422, "not valid JSON"),
    "no UTF-8": (b'{"rows": [{"pump": "\xff"}]}', 422, "not valid JSON"),
    "NaN": (b'{"rows": [{"pressure": NaN}]}', 422, "not valid JSON"),
    "infinite": (
        b'{"columns": {"pressure": [1e999], "flow": [1], "level": [1], "pump": ["a"]}}',
        422,
        "number is infinity when parsed as double",
    ),
    "empty": (b"", 422, "not valid JSON"),
    "another shape": ([ROW], 422, "holds list"),
    "both shapes": ({"rows": [ROW], "columns": {}}, 422, "'rows', 'columns'"),
    "no rows": ({"rows": []}, 422, "no rows"),
    "no values": ({"columns": {name: [] for name in FEATURES}}, 422, "no rows"),
    "a row that is none": ({"rows": [ROW, 7]}, 422, "row 1 is no object but int"),
    "a feature missing": ({"rows": [ROW, without("level")]}, 422, "row 1 lacks 1 of 4 features: 'level'"),
    "a column missing": (
        {"columns": {"flow": [1]}},
        422,
        "lacks 3 of 4 features: 'pressure', 'level', 'pump'",
    ),
    "a column that is none": ({"columns": {**ROW, "pressure": [1]}}, 422, "'flow' is no list but float"),
    "uneven columns": (
        {"columns": {"pressure": [1, 2], "flow": [1], "level": [1, 2], "pump": ["a", "b"]}},
        422,
        "'flow' has 1 values and 'pressure' has 2",
    ),
    "text for a number": ({"rows": [{**ROW, "level": "5"}]}, 422, "'level' is numeric but holds text"),
    "a number for text": ({"rows": [{**ROW, "pump": 5}]}, 422, "'pump' is categorical but holds numbers"),
    "an object": ({"rows": [{**ROW, "level": {}}]}, 422, "'level' is numeric but holds mixed values"),
    "beyond float64": ({"rows": [{**ROW, "level": 10**400}]}, 422, "number is infinity"),
    "too many rows": ({"columns": {name: [None] * (MAX_ROWS + 1) for name in FEATURES}}, 413, "65537 rows"),
    "too long": (b" " * (MAX_BODY_BYTES + 1), 413, "more than 16777216 bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_told_what_is_wrong(server: Server, case: str) -> None:
    sent, status, said = BAD[case]
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    answer = server.client.post("/score", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, set(answer.json())) == (status, {"error", "hint"}), answer.text
    assert said in answer.json()["error"]


def test_damaged_and_unknown_bodies_are_refused(server: Server) -> None:
    table = pa.Table.from_pandas(rows_of(20))
    wild = pa.DictionaryArray.from_arrays(pa.array([0, 9] * 10), pa.array(["north"]), safe=False)
    cases = [
        (PARQUET, as_parquet(table)[:-20], 422, "damaged"),
        (PARQUET, as_parquet(table.slice(0, 0)), 422, "no rows"),
        (PARQUET, as_parquet(pa.Table.from_pandas(rows_of(MAX_ROWS + 1))), 413, "65537 rows"),
        (ARROW_STREAM, as_stream(table)[:-200], 422, "damaged"),
        (ARROW_STREAM, as_stream(table.drop_columns(["level"])), 422, "'level'"),
        (ARROW_STREAM, as_stream(table.append_column("level", table["level"])), 422, "2 times"),
        (ARROW_STREAM, as_stream(table.set_column(3, "pump", wild)), 422, "damaged"),
        ("text/csv", b"pressure,flow", 415, "'text/csv'"),
    ]
    for content_type, body, status, said in cases:
        answer = server.client.post("/score", content=body, headers={"content-type": content_type})
        assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text


def test_what_it_says_of_itself(server: Server, scorers: dict[str, Scorer]) -> None:
    assert server.client.get("/health/live").json() == {"status": "alive"}
    ready = server.ready()
    assert (ready["ready"], ready["following"], ready["reason"]) == (True, True, None)
    assert ready["confirmed_seconds_ago"] < 60
    described = server.client.get("/model").json()
    assert described["detector"] == "linear"
    assert described["threshold"] == scorers["1"].threshold.value
    assert described["features"] == [
        {"name": column.name, "kind": column.kind} for column in scorers["1"].schema.features
    ]
    assert {"/score", "/model", "/metrics"} <= set(server.client.get("/openapi.json").json()["paths"])
    assert server.client.get("/docs").status_code == 200


def metrics(server: Server) -> dict[str, float]:
    families = text_string_to_metric_families(server.client.get("/metrics").text)
    return {
        sample.name.removeprefix("floodmark_serving_")
        + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_count_requests_rows_and_alerts(server: Server) -> None:
    before = metrics(server)
    answer = server.client.post("/score", json={"rows": [ROW, {**ROW, "level": 500}]}).json()
    server.client.post("/score", json={"rows": []})
    after = metrics(server)
    assert answer["is_anomaly"] == [False, True]
    names = ["requests_total 200", "requests_total 422", "rows_total", "alerts_total"]
    assert [after[name] - before.get(name, 0) for name in names] == [1, 1, 2, 1]
    assert after["request_duration_seconds_count"] - before["request_duration_seconds_count"] == 2
    assert after["model_info floodmark 1"] == after["following"] == 1
    assert after["alias_confirmed_age_seconds"] >= 0


def test_no_answer_mixes_two_versions_while_the_alias_moves(
    moved: tuple[Server, Registry], scorers: dict[str, Scorer]
) -> None:
    server, registry = moved
    rows = as_objects(rows_of(40))
    frame = pd.DataFrame(rows)
    expected = {version: scorer.score(frame) for version, scorer in scorers.items()}
    assert scorers["1"].threshold.value != scorers["2"].threshold.value
    done, seen = threading.Event(), {"1": 0, "2": 0}

    def load(_: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while not done.is_set():
                answer = client.post("/score", json={"rows": rows})
                assert answer.status_code == 200, answer.text
                found = answer.json()
                version = found["model_version"]
                threshold = scorers[version].threshold.value
                assert found["threshold"] == threshold
                assert found["anomaly_score"] == expected[version].tolist()
                assert found["is_anomaly"] == (expected[version] > threshold).tolist()
                seen[version] += 1

    with ThreadPoolExecutor(4) as clients:
        loads = [clients.submit(load, number) for number in range(4)]
        try:
            for version in ("2", "1", "2", "1", "2"):
                registry.set_alias("champion", version)
                server.wait_for(lambda found, version=version: found["model_version"] == version)  # type: ignore[misc] # mypy infers no lambda with a default
        finally:
            done.set()
        for running in loads:
            running.result()
    assert min(seen.values()) > 0


class MakesAFile:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def foreign_model(folder: Path, created: Path) -> str:
    """Write an MLflow model whose loading would create `created`, by a pickle and by its code."""
    (folder / "artifacts" / "detector").mkdir(parents=True)
    (folder / "MLmodel").write_text(
        "flavors:\n  python_function:\n    loader_module: evil\n    code: code\n    python_model: model.pkl\n"
    )
    (folder / "code").mkdir()
    (folder / "code" / "evil.py").write_text(f"import os\nos.mkdir({str(created)!r})\n")
    for place in (folder, folder / "artifacts", folder / "artifacts" / "detector"):
        (place / "model.pkl").write_bytes(pickle.dumps(MakesAFile(created)))
    return str(folder)


def test_whatever_the_alias_names_the_old_version_serves_until_there_is_a_better_one(
    moved: tuple[Server, Registry], tmp_path: Path
) -> None:
    server, registry = moved
    client = MlflowClient(registry.tracking_uri)

    def keeps_serving(why: str) -> None:
        found = server.wait_for(lambda found: why in (found["reason"] or ""))
        assert (found["ready"], found["following"], found["model_version"]) == (True, False, "1")
        assert server.client.get("/health/ready").status_code == 200
        assert server.client.post("/score", json={"rows": [ROW]}).json()["model_version"] == "1"
        assert metrics(server)["following"] == 0
        assert server.log.count(why) == 1

    created = tmp_path / "created"
    foreign = client.create_model_version(registry.model, foreign_model(tmp_path / "foreign", created))
    registry.set_alias("champion", str(foreign.version))
    keeps_serving(f"version {foreign.version} cannot be loaded")
    assert not created.exists()

    broken = tmp_path / "broken"
    shutil.copytree(registry.artifact_folder("2"), broken / "artifacts" / "detector")
    network = broken / "artifacts" / "detector" / artifact.NETWORK
    whole = network.read_bytes()
    network.write_bytes(whole[:-100])
    version = str(client.create_model_version(registry.model, str(broken)).version)
    registry.set_alias("champion", version)
    keeps_serving(f"version {version} cannot be loaded: truncated or exchanged")
    assert metrics(server)["load_failures_total"] >= 2

    registry.delete_alias("champion")
    keeps_serving("the registry has no champion")
    away = tmp_path / "away.db"
    database = tmp_path / "home" / "mlflow.db"
    database.rename(away)
    keeps_serving("the registry does not answer")
    assert not database.exists()
    away.rename(database)
    registry.set_alias("champion", "1")
    server.wait_for(lambda found: found["following"])
    client.delete_model_version(registry.model, "1")
    server.wait_for(lambda found: found["reason"] == "the registry has no champion")

    network.write_bytes(whole)
    registry.set_alias("champion", version)
    server.wait_for(lambda found: found["model_version"] == version and found["following"])
    assert server.stop() == 0


def test_a_registry_that_hangs_delays_no_answer_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"FLOODMARK_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_TIMEOUT": "1"}
        with serving(tmp_path / "home", env=env) as server:
            answer = server.client.post("/score", json={"rows": [ROW]})
            assert answer.status_code == 503
            assert server.client.get("/health/ready").status_code == 503
            assert server.client.get("/model").status_code == 503
            assert "does not answer" in server.ready()["reason"]
            assert server.stop() == 0


def test_it_waits_for_its_first_champion_and_ends_after_the_request_in_flight(
    home: Path, tmp_path: Path
) -> None:
    registry = copied(home, tmp_path / "home")
    registry.delete_alias("champion")
    with serving(tmp_path / "home") as server:
        assert server.client.get("/health/ready").status_code == 503
        registry.set_alias("champion", "2")
        server.wait_for(lambda found: found["ready"])
        body = json.dumps({"rows": [ROW]}).encode()
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        with socket.create_connection(address, timeout=60) as connection:
            head = f"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body[:10])
            time.sleep(0.3)
            server.process.terminate()
            deadline = time.monotonic() + 60
            while True:  # until it takes no more
                assert time.monotonic() < deadline
                try:
                    socket.create_connection(address, timeout=1).close()
                except OSError:
                    break
                time.sleep(0.05)
            connection.sendall(body[10:])
            received = b""
            while part := connection.recv(65_536):
                received += part
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert b'"model_version":"2"' in received
        assert server.process.wait(60) == 0
        assert server.log.endswith("stopped\n")
        assert "Traceback" not in server.log


def test_wrong_use_is_told_and_exits_with_two(home: Path, server: Server, tmp_path: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    taken = floodmark("serve", "--home", home, "--port", port, cwd=tmp_path)
    assert (taken.returncode, f"cannot listen at 127.0.0.1:{port}" in taken.stderr) == (2, True)
    wrong = floodmark(
        "serve", "--port", "0", cwd=tmp_path, env={"FLOODMARK_TRACKING_URI": "ftp://127.0.0.1/x"}
    )
    assert (wrong.returncode, "allowed are URIs" in wrong.stderr) == (2, True)
