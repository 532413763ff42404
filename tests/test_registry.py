"""The registry against real MLflow: SQLite in a folder, and a tracking server of its own process."""

import dataclasses
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped] # it has no types
import numpy as np
import pandas as pd
import pytest
from matplotlib import image

from artifacts import build_artifact, normal_rows, training_request
from infra.clean_load import clean_load
from infra.registry import Aliases, Registry
from tracking_server import serving, stop
from training import artifact
from training.errors import ConfigurationError, InvalidArtifactError, RetryableError
from training.scorer import Scorer
from training.types import TrainingRequest, TrainingResult

# isort: split
# After the registry, which keeps MLflow from warning of its own type hints as it is imported.
import mlflow.pyfunc
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

# MLflow 3.17 asks SQLAlchemy 2.1 for a loader that is to be removed.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

ROOT = Path(__file__).resolve().parents[1]
Predict = Callable[[pd.DataFrame], pd.DataFrame]
NO_ALIASES = Aliases(champion=None, challenger=None, previous=None)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing in between may catch it."""


@dataclasses.dataclass(frozen=True)
class Opened:
    """A registry and what its first opening printed."""

    registry: Registry
    output: str


@dataclasses.dataclass(frozen=True)
class Registered:
    """A registered version and what it was made from."""

    version: str
    request: TrainingRequest
    result: TrainingResult


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Open a new home, the only database migration of this module."""
    output = io.StringIO()
    with redirect_stderr(output), redirect_stdout(output):
        # The blank and the accent must survive two kinds of URI.
        registry = Registry.open(tmp_path_factory.mktemp("registry") / "a höme", "pumps")
    return Opened(registry, output.getvalue())


@pytest.fixture
def registry(opened: Opened, request: pytest.FixtureRequest) -> Registry:
    """Return a registered model of the test's own in the shared database."""
    name = request.node.name.replace("[", "-").replace("]", "")
    return dataclasses.replace(opened.registry, model=name, experiment=name)


@pytest.fixture(scope="module")
def registered(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> Registered:
    """Register one version of the model `pumps`, for the tests that only read."""
    request = training_request()
    result = build_artifact(tmp_path_factory.mktemp("artifact") / "7", request)
    version = opened.registry.register(request, result, reason="drift")
    opened.registry.set_alias("champion", version)
    return Registered(version, request, result)


@pytest.fixture(scope="module")
def served(opened: Opened, registered: Registered) -> Predict:
    """Load the champion in this process as anyone would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", opened.registry.tracking_uri)
        assert opened.registry.aliases().champion == registered.version
        model = mlflow.pyfunc.load_model("models:/pumps@champion")

    def predict(rows: pd.DataFrame) -> pd.DataFrame:
        predicted = model.predict(rows)
        assert isinstance(predicted, pd.DataFrame)
        return predicted

    return predict


def versions(registry: Registry) -> list[str]:
    found = MlflowClient(registry.tracking_uri).search_model_versions(f"name = '{registry.model}'")
    return [str(version.version) for version in found]


def test_opening_a_new_home_is_quiet_and_leaves_a_whole_database(
    opened: Opened, registered: Registered
) -> None:
    home = opened.registry.cache.parent
    assert opened.output == ""
    assert sorted(path.name for path in home.iterdir()) == ["artifacts", "mlflow.db"]
    assert registered.version
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_home_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"mlflow\.db cannot be created"):
        Registry.open(tmp_path / "home", "pumps")


def test_a_home_that_mlflow_would_misread_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="without a percent sign"):
        Registry.open(tmp_path / "100%25", "pumps")


def test_stores_that_mlflow_no_longer_has_are_refused_without_showing_a_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="allowed are URIs that begin with http:") as refused:
        Registry.open(tmp_path, "pumps", "ftp://someone:secret@host/mlruns")
    assert "secret" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_version_says_where_it_comes_from(opened: Opened, registered: Registered) -> None:
    client = MlflowClient(opened.registry.tracking_uri)
    version = client.get_model_version("pumps", registered.version)
    assert version.tags == {
        "floodmark.request_id": registered.request.id,
        "floodmark.detector": "linear",
        "floodmark.threshold": repr(registered.result.threshold.value),
        "floodmark.threshold_method": "quantile",
    }
    run = client.get_run(version.run_id or "")
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.note.content"] == "drift"
    assert run.data.params["windows"] == "2026-01-05 2026-01-06"
    assert run.data.params["option.components"] == "2"
    assert run.data.params["seed"] == "0"
    assert run.data.metrics["rows"] == registered.result.rows
    assert run.data.metrics["threshold"] == registered.result.threshold.value


def test_a_run_shows_the_course_of_its_training(
    opened: Opened, registered: Registered, tmp_path: Path
) -> None:
    client = MlflowClient(opened.registry.tracking_uri)
    run_id = client.get_model_version("pumps", registered.version).run_id or ""
    for name, expected in (("loss", [0.9, 0.4, 0.5]), ("validation_loss", [1.0, 0.5, 0.6])):
        history = client.get_metric_history(run_id, f"epoch_{name}")
        assert [(item.step, item.value) for item in history] == list(enumerate(expected, start=1))
    for name in ("epochs", "scores"):
        drawn = client.download_artifacts(run_id, f"pictures/{name}.png", str(tmp_path))
        assert image.imread(drawn).std() > 0.05  # something is drawn


def test_registering_again_finds_the_version(opened: Opened, registered: Registered) -> None:
    again = opened.registry.register(registered.request, registered.result, reason="drift")
    assert again == registered.version
    assert versions(opened.registry) == [registered.version]


@pytest.mark.parametrize(
    "step",
    [
        "create_experiment",
        "create_run",
        "log_batch",
        "log_figure",
        "create_logged_model",
        "log_outputs",
        "log_model_artifacts",
        "finalize_logged_model",
        "set_terminated",
        "create_registered_model",
        "create_model_version",
    ],
)
def test_a_registration_killed_after_any_step_ends_with_one_version(
    registry: Registry, registered: Registered, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    original = getattr(MlflowClient, step)

    def killed(*arguments: Any, **options: Any) -> NoReturn:  # noqa: ANN401 - whatever the step takes
        original(*arguments, **options)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, step, killed)
        with pytest.raises(KilledError):
            registry.register(registered.request, registered.result, reason="drift")
    assert ("RUNNING" in statuses(registry)) == (step == "create_run")  # which nobody knows of yet
    version = registry.register(registered.request, registered.result, reason="drift")
    assert versions(registry) == [version] == ["1"]
    assert registry.scorer(version).threshold == registered.result.threshold
    client = MlflowClient(registry.tracking_uri)
    (run,) = runs(registry)
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 1
    assert len(client.get_metric_history(run.info.run_id, "epoch_loss")) == 3


def runs(registry: Registry) -> list[Run]:
    client = MlflowClient(registry.tracking_uri)
    experiment = client.get_experiment_by_name(registry.experiment)
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def statuses(registry: Registry) -> list[str]:
    return [run.info.status for run in runs(registry)]


def test_a_run_whose_process_was_lost_is_closed_by_the_next_registration(
    registry: Registry, registered: Registered
) -> None:
    client = MlflowClient(registry.tracking_uri)
    experiment = client.create_experiment(registry.experiment, registry.artifact_root)
    client.create_run(experiment, tags={"floodmark.request_id": "of a machine that is gone"})
    client.create_run(experiment, run_name="a person's own")
    registry.register(registered.request, registered.result, reason="drift")
    assert statuses(registry) == ["FINISHED", "RUNNING", "KILLED"]


def test_a_request_that_reaches_mlflow_twice_leaves_one_version(
    registry: Registry, registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MlflowClient.create_model_version

    def sent_twice(*arguments: Any, **options: Any) -> object:  # noqa: ANN401 - whatever the step takes
        original(*arguments, **options)
        return original(*arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_model_version", sent_twice)
    assert registry.register(registered.request, registered.result, reason="drift") == "1"
    assert versions(registry) == ["1"]


def test_an_artifact_that_is_not_the_result_is_not_registered(
    registry: Registry, registered: Registered, tmp_path: Path
) -> None:
    other = dataclasses.replace(registered.result.threshold, value=1.0)
    with pytest.raises(InvalidArtifactError, match="nothing was registered"):
        registry.register(
            registered.request, dataclasses.replace(registered.result, threshold=other), reason="drift"
        )
    with pytest.raises(InvalidArtifactError, match="nothing was registered"):
        registry.register(training_request(seed=9), registered.result, reason="drift")
    result = dataclasses.replace(registered.result, artifact=str(tmp_path / "truncated"))
    shutil.copytree(registered.result.artifact, result.artifact)
    os.truncate(Path(result.artifact) / artifact.NETWORK, 100)
    with pytest.raises(InvalidArtifactError, match=r"truncated or exchanged .*network\.onnx"):
        registry.register(registered.request, result, reason="drift")
    assert registry.aliases() == NO_ALIASES


def test_thousands_of_windows_are_registered(registry: Registry, tmp_path: Path) -> None:
    request = training_request(windows=tuple(f"window-{number:06}" for number in range(3000)))
    result = build_artifact(tmp_path / "artifact", request)
    assert registry.register(request, result, reason="drift") == "1"
    assert registry.register(request, result, reason="drift") == "1"


def test_aliases_are_set_moved_and_deleted(registry: Registry, registered: Registered) -> None:
    assert registry.aliases() == NO_ALIASES
    registry.delete_alias("champion")
    version = registry.register(registered.request, registered.result, reason="drift")
    assert registry.aliases() == NO_ALIASES
    for _ in range(2):
        registry.set_alias("champion", version)
        registry.set_alias("challenger", version)
        assert registry.aliases() == Aliases(champion=version, challenger=version, previous=None)
    for _ in range(2):
        registry.delete_alias("challenger")
        assert registry.aliases() == Aliases(champion=version, challenger=None, previous=None)
    with pytest.raises(ConfigurationError, match="set champion to version 99"):
        registry.set_alias("champion", "99")
    assert registry.aliases().champion == version
    MlflowClient(registry.tracking_uri).delete_model_version(registry.model, version)
    assert registry.aliases() == NO_ALIASES


def test_versions_that_do_not_exist_or_are_not_ours_are_named(
    registry: Registry, registered: Registered
) -> None:
    registry.register(registered.request, registered.result, reason="drift")
    client = MlflowClient(registry.tracking_uri)
    foreign = str(client.create_model_version(registry.model, "/nowhere").version)
    with pytest.raises(InvalidArtifactError, match="/nowhere"):
        registry.scorer(foreign)
    with pytest.raises(ConfigurationError, match="version 99"):
        registry.artifact_folder("99")
    with pytest.raises(ConfigurationError, match="version 99"):
        registry.set_verdict("99", "pass")


def test_verdicts_and_reports_lie_beside_the_version(
    registry: Registry, registered: Registered, tmp_path: Path
) -> None:
    version = registry.register(registered.request, registered.result, reason="drift")
    gate = {"gate": "finite", "observed": float("nan"), "bound": None}
    registry.report_gates(version, "undecided", [gate])
    registry.log_report(version, "drift.html", "<p>drift</p>")
    client = MlflowClient(registry.tracking_uri)
    found = client.get_model_version(registry.model, version)
    assert found.tags["floodmark.verdict"] == "undecided"
    folder = Path(client.download_artifacts(found.run_id or "", "reports", str(tmp_path)))
    report = json.loads((folder / "gates.json").read_text())
    assert report["gates"] == [{"gate": "finite", "observed": "NaN", "bound": None}]
    assert (folder / "drift.html").read_text() == "<p>drift</p>"


def test_the_stored_artifact_is_the_trained_one(opened: Opened, registered: Registered) -> None:
    folder = opened.registry.artifact_folder(registered.version)
    artifact.verify(folder)
    scores = opened.registry.scorer(registered.version).score(pd.read_parquet(folder / artifact.CHECK_ROWS))
    np.testing.assert_array_equal(scores, np.load(folder / artifact.CHECK_SCORES))


def test_no_pickle_is_written_or_read(
    opened: Opened, registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened.registry.artifact_folder(registered.version).parents[1]
    files = [path for path in model.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {"MLmodel", "pyfunc_model.py", "scorer.py", artifact.NETWORK} <= {path.name for path in files}
    assert not [path for path in files if path.suffix in {".pkl", ".pickle"}]
    assert not [path for path in files if path.read_bytes()[:2] in {b"\x80\x04", b"\x80\x05"}]
    requirements = (model / "requirements.txt").read_text()
    assert "onnxruntime==" in requirements
    assert "tensorflow" not in requirements
    assert "horovod" not in requirements

    def refuse(*_: object, **__: object) -> NoReturn:
        pytest.fail("something was unpickled")

    for module in (pickle, cloudpickle):
        monkeypatch.setattr(module, "load", refuse)
        monkeypatch.setattr(module, "loads", refuse)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", opened.registry.tracking_uri)
    assert len(mlflow.pyfunc.load_model("models:/pumps/1").predict(normal_rows(5))) == 5


def test_predictions_are_scores_held_against_the_threshold(served: Predict, registered: Registered) -> None:
    rows = normal_rows(300, seed=5).sample(frac=1, random_state=1)
    rows.index = pd.Index(np.arange(300) % 7)
    predicted = served(rows)
    expected = Scorer.load(Path(registered.result.artifact)).score(rows)
    threshold = registered.result.threshold.value
    assert {name: str(predicted[name].dtype) for name in predicted} == {
        "anomaly_score": "float64",
        "threshold": "float64",
        "is_anomaly": "bool",
    }
    pd.testing.assert_index_equal(predicted.index, rows.index)
    np.testing.assert_array_equal(predicted["anomaly_score"], expected)
    np.testing.assert_array_equal(predicted["is_anomaly"], expected > threshold)
    assert (predicted["threshold"] == threshold).all()
    assert 0 < predicted["is_anomaly"].mean() < 0.2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda rows: rows[rows.columns[::-1]], id="reordered"),
        pytest.param(lambda rows: rows.assign(unknown=object()), id="extra"),
        pytest.param(lambda rows: rows.astype({"pressure": np.float64}), id="floats-for-integers"),
        pytest.param(lambda rows: rows.astype({"pressure": np.int32, "pump": object}), id="other-widths"),
        pytest.param(lambda rows: rows.astype({"pump": "category"}), id="categories"),
    ],
)
def test_what_does_not_matter_does_not_change_the_scores(
    served: Predict, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    rows = normal_rows(100)
    pd.testing.assert_frame_equal(served(change(rows)), served(rows))


def test_missing_values_are_scored_and_missing_columns_are_named(served: Predict) -> None:
    rows = normal_rows(100)
    gaps = rows.assign(pressure=np.nan, pump=None)
    assert np.isfinite(served(gaps)["anomaly_score"]).all()
    with pytest.raises(Exception, match=r"missing.*level"):
        served(rows.drop(columns="level"))


def test_no_rows_are_no_predictions(served: Predict) -> None:
    rows = normal_rows(10)
    pd.testing.assert_frame_equal(served(rows.iloc[:0]), served(rows).iloc[:0])


FOREIGN = """
import importlib.util, json, pickle, sys
root, rows = sys.argv[1:]
sys.path[:] = [path for path in sys.path if path != root]
assert importlib.util.find_spec("training") is None and importlib.util.find_spec("infra") is None
sys.modules.update(dict.fromkeys(["tensorflow", "keras", "horovod", "prefect", "evidently"]))
import cloudpickle, mlflow.pyfunc, pandas
pickle.load = pickle.loads = cloudpickle.load = cloudpickle.loads = None
model = mlflow.pyfunc.load_model("models:/pumps@champion")
print(json.dumps(model.predict(pandas.read_parquet(rows)).to_dict("list")))
"""


def test_plain_mlflow_serves_the_champion_where_floodmark_and_tensorflow_are_not(
    opened: Opened, registered: Registered, tmp_path: Path
) -> None:
    rows = normal_rows(50, seed=5)
    rows.to_parquet(tmp_path / "rows.parquet")
    child = subprocess.run(
        [sys.executable, "-I", "-c", FOREIGN, str(ROOT), str(tmp_path / "rows.parquet")],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": opened.registry.tracking_uri},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    predicted = json.loads(child.stdout.splitlines()[-1])
    expected = Scorer.load(Path(registered.result.artifact)).score(rows)
    np.testing.assert_allclose(predicted["anomaly_score"], expected, rtol=0, atol=1e-9)
    assert predicted["is_anomaly"] == list(expected > registered.result.threshold.value)


def test_clean_load_prints_one_line_of_json(opened: Opened, registered: Registered) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "infra.clean_load", f"models:/pumps/{registered.version}"],
        cwd=ROOT,
        env={**os.environ, "MLFLOW_TRACKING_URI": opened.registry.tracking_uri},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    (line,) = child.stdout.splitlines()
    found = json.loads(line)
    assert found["difference"] <= 1e-9
    assert found["imported"] == []
    assert 0 < found["microseconds_per_row"] < 1e6
    artifact_alone = sum(file.stat().st_size for file in Path(registered.result.artifact).rglob("*"))
    assert found["artifact_bytes"] > artifact_alone


def test_a_truncated_artifact_neither_loads_nor_passes_the_clean_load(
    registry: Registry, registered: Registered
) -> None:
    version = registry.register(registered.request, registered.result, reason="drift")
    os.truncate(registry.artifact_folder(version) / artifact.NETWORK, 100)
    with pytest.raises(InvalidArtifactError, match=r"truncated or exchanged .*network\.onnx"):
        registry.scorer(version)
    found = clean_load(registry, version, timeout=120)
    assert found.difference is found.microseconds_per_row is found.artifact_bytes is None
    assert found.error is not None
    assert "truncated or exchanged" in found.error


def test_a_clean_load_that_takes_too_long_is_an_error(opened: Opened, registered: Registered) -> None:
    found = clean_load(opened.registry, registered.version, timeout=0.01)
    assert found.difference is None
    assert found.error == "models:/pumps/1 was not loaded and scored within 0.01 s"


@pytest.fixture
def tracking_server(opened: Opened, tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Start MLflow's own server on a copy of the migrated database; artifacts go through it."""
    shutil.copy(opened.registry.cache.with_name("mlflow.db"), tmp_path / "server.db")
    with serving(tmp_path) as served:
        yield served


def test_a_tracking_server_serves_it_all_and_one_that_is_down_is_not_an_empty_one(
    tracking_server: tuple[str, "subprocess.Popen[bytes]"],
    registered: Registered,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri, process = tracking_server
    registry = Registry.open(tmp_path / "home", "remote", uri)
    assert registry.aliases() == NO_ALIASES
    version = registry.register(registered.request, registered.result, reason="drift")
    assert registry.register(registered.request, registered.result, reason="drift") == version
    registry.set_alias("champion", version)
    assert registry.aliases() == Aliases(champion=version, challenger=None, previous=None)
    registry.log_report(version, "gates.json", {"passed": True})
    folder = registry.artifact_folder(version)
    assert folder.is_relative_to(tmp_path / "home" / "cache")
    assert registry.artifact_folder(version) == folder
    assert registry.scorer(version).threshold == registered.result.threshold
    found = clean_load(registry, version, timeout=120)
    assert found.error is None
    assert found.difference is not None
    assert found.difference <= 1e-9
    stop(process)
    calls: list[Callable[[], object]] = [
        registry.aliases,
        lambda: Registry.open(tmp_path / "home", "remote", uri),
        lambda: clean_load(registry, version),
    ]
    for call in calls:
        with pytest.raises(RetryableError, match=f"tracking server {uri}"):
            call()


HANGING = 0


class Answer(BaseHTTPRequestHandler):
    """Answers every request with the status and body that the server was given."""

    def do_GET(self) -> None:
        """Answer."""
        status, body = self.server.answer  # type: ignore[attr-defined] # set by the test
        if status == HANGING:
            time.sleep(2)  # beyond the client's patience in this test
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def stub() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"oops"),
        (500, b'{"error_code": "INTERNAL_ERROR", "message": "database is locked"}'),
        (503, b"starting"),
        (404, b"<html>no such page</html>"),
        (404, b'{"detail": "Not Found"}'),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}'),
        (401, b"who are you"),
        (200, b"<html>please log in</html>"),
        (200, b""),
        (200, b"{}"),
        (HANGING, b""),
    ],
)
def test_only_mlflows_own_answer_means_that_there_is_no_champion(
    registry: Registry,
    stub: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    remote = dataclasses.replace(
        registry, model="pumps", tracking_uri=f"http://someone:secret@127.0.0.1:{stub.server_port}"
    )
    stub.answer = (status, body)  # type: ignore[attr-defined] # read by Answer
    with pytest.raises(RetryableError, match="tracking server") as failure:
        remote.aliases()
    assert "secret" not in str(failure.value)
    assert "secret" not in repr(remote)
    missing = b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Registered Model not found"}'
    stub.answer = (404, missing)  # type: ignore[attr-defined] # read by Answer
    assert remote.aliases() == NO_ALIASES


def test_a_failing_database_is_not_an_empty_one(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> NoReturn:
        raise MlflowException("database is locked")

    monkeypatch.setattr(MlflowClient, "get_registered_model", locked)
    with pytest.raises(RetryableError, match="could not read the aliases: database is locked"):
        registry.aliases()
