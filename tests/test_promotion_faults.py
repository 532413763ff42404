"""What may happen on the way of a promotion: whatever it is, one champion serves, and one entry says why."""

import pickle
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from artifacts import build_artifact, training_request
from command import floodmark
from flows.installation import Installation
from flows.judge import decide
from flows.reconcile import reconcile_now
from histories import judged, settled, trained
from infra.settings import load_settings
from monitoring.history import History
from monitoring.records import Record
from training.errors import FloodmarkError, RetryableError
from training.types import GateResult, PromotionOutcome, Verdict

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

REFUSED = PromotionOutcome.REFUSED


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home, in which each test has a model of its own."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def installation(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Installation:
    """Version 1 was followed by champion 2; version 3 was refused by its gates."""
    monkeypatch.chdir(tmp_path)
    model = re.sub(r"\W+", "-", request.node.name).strip("-")
    installation = Installation(load_settings(None, {"home": home, "model": model}))
    for seed in range(3):
        wanted = training_request(seed=seed, model=model)
        result = build_artifact(tmp_path / f"artifact-{seed}", wanted)
        installation.registry.register(wanted, result, reason="test")
    for version, outcome, before in (
        ("1", PromotionOutcome.PROMOTED, None),
        ("2", PromotionOutcome.PROMOTED, "1"),
        ("3", REFUSED, "2"),
    ):
        for record in (trained(version, "a"), judged(version, outcome, before), settled(version)):
            installation.ledger.append(installation.ledger.load(), record)
    installation.registry.set_alias("previous", "1")
    installation.registry.set_alias("champion", "2")
    return installation


def client(installation: Installation) -> MlflowClient:
    return MlflowClient(installation.registry.tracking_uri, installation.registry.tracking_uri)


def reopened(installation: Installation, model: str | None = None) -> Installation:
    settings = installation.settings
    return Installation(load_settings(None, {"home": settings.home, "model": model or settings.model}))


def look(installation: Installation) -> History:
    return reconcile_now(installation, lambda _: None)


def standing(installation: Installation) -> tuple[str | None, str | None, int]:
    """The champion by the alias and by the ledger, and how many entries speak of promotions."""
    history = installation.ledger.load()
    return installation.registry.aliases().champion, history.champion, len(history.promotions)


def test_a_deleted_champion_is_followed_by_the_former_one(installation: Installation) -> None:
    client(installation).delete_model_version(installation.settings.model, "2")
    assert standing(installation) == (None, "2", 3)
    look(installation)
    assert standing(installation) == ("1", "1", 4)
    moves = [(record.version, record.reason) for _, record in installation.ledger.load().champion_moves()]
    assert moves[1][0] == "2", "who was champion is told after its version is gone"
    assert moves[2] == ("1", "version 2 was deleted in MLflow")
    client(installation).delete_model_version(installation.settings.model, "1")
    for _ in range(2):
        with pytest.raises(RetryableError, match="no former champion is left"):
            look(installation)
    assert standing(installation) == (None, "1", 4)


class Trap:
    """What a pickle holds of it leaves a file behind when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.file,)


FOREIGN = """
flavors:
  python_function:
    loader_module: mlflow.pyfunc.model
    python_model: python_model.pkl
"""


@pytest.mark.parametrize("unvetted", ["put_back", "serve"])
def test_a_foreign_model_is_put_back_and_nothing_of_it_is_executed(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unvetted: str
) -> None:
    monkeypatch.setenv("FLOODMARK_PROMOTION__UNVETTED", unvetted)
    installation = reopened(installation)
    trap = tmp_path / "executed"
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "MLmodel").write_text(FOREIGN)
    (tmp_path / "foreign" / "python_model.pkl").write_bytes(pickle.dumps(Trap(trap)))
    version = (
        client(installation)
        .create_model_version(installation.settings.model, (tmp_path / "foreign").as_uri())
        .version
    )
    installation.registry.set_alias("champion", str(version))
    look(installation)
    assert standing(installation) == ("2", "2", 4)
    assert "holds no intact artifact" in installation.ledger.load().promotions[-1].reason
    assert not trap.exists()


def test_a_version_of_another_model_is_put_back(installation: Installation, tmp_path: Path) -> None:
    other = reopened(installation, "other")
    request = training_request(seed=9, model="other")
    result = build_artifact(tmp_path / "other", request)
    source = other.registry.artifact_folder(other.registry.register(request, result, reason="test"))
    copied = client(installation).create_model_version(
        installation.settings.model, source.parents[1].as_uri()
    )
    installation.registry.set_alias("champion", str(copied.version))
    look(installation)
    assert standing(installation) == ("2", "2", 4)
    assert "it was trained as a version of other" in installation.ledger.load().promotions[-1].reason


@pytest.mark.parametrize("command", [("rollback",), ("promote", "1", "--force")])
def test_a_command_that_needs_a_deleted_version_changes_nothing(
    installation: Installation, command: tuple[str, ...]
) -> None:
    client(installation).delete_model_version(installation.settings.model, "1")
    settings = installation.settings
    where = ("--home", str(settings.home), "--model", settings.model)
    done = floodmark(*command, "--reason", "test", *where, cwd=Path.cwd())
    assert done.returncode == 2
    assert "nothing was changed" in done.stderr or "no previous champion" in done.stderr
    assert standing(installation) == ("2", "2", 3)
    look(installation)
    assert standing(installation) == ("2", "2", 3)


def test_a_version_deleted_between_its_promotion_and_its_alias_holds_nothing_up(
    installation: Installation,
) -> None:
    client(installation).delete_model_version(installation.settings.model, "1")
    rolled_back = replace(judged("1", PromotionOutcome.ROLLED_BACK, "2"), by="person")
    installation.ledger.append(installation.ledger.load(), rolled_back)
    for _ in range(3):
        look(installation)
    assert standing(installation)[:2] == ("2", "2"), "the alias points to what is left"


def test_a_verdict_of_the_gates_is_left_to_the_loop(installation: Installation) -> None:
    installation.ledger.append(installation.ledger.load(), judged("3", PromotionOutcome.PROMOTED, "2"))
    assert look(installation).unsettled_promotion() is not None
    assert installation.registry.aliases().champion == "2"


def test_a_truncated_artifact_is_put_back(installation: Installation) -> None:
    network = installation.registry.artifact_folder("1") / "network.onnx"
    network.write_bytes(network.read_bytes()[:-1])
    installation.registry.set_alias("champion", "1")
    look(installation)
    assert standing(installation) == ("2", "2", 4)
    assert "network.onnx" in installation.ledger.load().promotions[-1].reason


def test_a_person_who_promotes_while_the_gates_run_is_not_overruled(installation: Installation) -> None:
    """The verdict was about champion 2; it is given up, and the next look follows the person first."""
    judging = installation.ledger.load()
    installation.registry.set_alias("champion", "1")
    passed = GateResult(gate="finite", verdict=Verdict.PASS, observed=None, bound=None, reason="fine")
    with pytest.raises(RetryableError, match="judge it again"):
        decide(installation, judging, "3", (passed,))
    look(installation)
    assert standing(installation) == ("1", "1", 4)


# Four threads share the list of warning filters, which the registry changes for a moment.
@pytest.mark.filterwarnings("ignore:.*An input example was not provided:UserWarning")
def test_two_trainings_that_end_at_once_leave_one_version(installation: Installation, tmp_path: Path) -> None:
    wanted = training_request(seed=5, model=installation.settings.model)
    result = build_artifact(tmp_path / "both", wanted)

    @retry(retry=retry_if_exception_type(RetryableError), stop=stop_after_attempt(5))  # as the flow does
    def register(_: int) -> str:
        return reopened(installation).registry.register(wanted, result, reason="test")

    with ThreadPoolExecutor(4) as pool:
        versions = set(pool.map(register, range(4)))
    assert len(versions) == 1
    found = client(installation).search_model_versions(f"name = '{installation.settings.model}'")
    requests = [version.tags["floodmark.request_id"] for version in found]
    assert requests.count(wanted.id) == 1


class Fault:
    """Lets one of MLflow's or the ledger's calls end in an error, or kills the process before or after it."""

    def __init__(self, error: type[BaseException], *, at: int, after: bool) -> None:
        self.error, self.at, self.after, self.calls = error, at, after, 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the call takes
            self.calls += 1
            hit = self.calls == self.at
            if hit and not self.after:
                raise self.error("injected")
            answer = call(*arguments, **options)
            if hit:
                raise self.error("injected")
            return answer

        return faulty


CALLS = (
    "get_registered_model",
    "get_model_version",
    "get_model_version_download_uri",
    "set_registered_model_alias",
    "delete_registered_model_alias",
)

STORIES: dict[str, tuple[str | None, tuple[str, str, int]]] = {
    "promoted": ("1", ("1", "1", 4)),
    "put back": ("3", ("2", "2", 4)),
    "taken away": (None, ("1", "1", 4)),
}
"""What a person does to the alias, and where it ends."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MlflowException, OSError])
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_any_call_of_the_path_changes_nothing_of_its_end(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
    error: type[BaseException],
    after: bool,
) -> None:
    alias, end = STORIES[story]
    begin = _state(installation)
    for at in range(1, 100):
        _restore(installation, begin)
        if alias is None:
            installation.registry.delete_alias("champion")
        else:
            installation.registry.set_alias("champion", alias)
        fault = Fault(error, at=at, after=after)
        with monkeypatch.context() as patched:
            for name in CALLS:
                patched.setattr(MlflowClient, name, fault.around(getattr(MlflowClient, name)))
            patched.setattr(type(installation.store), "create", fault.around(type(installation.store).create))
            with suppress(KeyboardInterrupt, FloodmarkError, MlflowException, OSError):
                look(Installation(installation.settings))
        look(Installation(installation.settings))
        assert standing(installation) == end, f"after a fault at call {at}"
        installation.ledger._entries.clear()  # noqa: SLF001 - the ledger is restored behind its back
        if fault.calls < at:
            assert at > 5, "the path has more calls than that"
            return
    pytest.fail("the path never ended without a fault")


def _state(installation: Installation) -> list[Record]:
    return [entry.record for entry in installation.ledger.load().entries]


def _restore(installation: Installation, records: list[Record]) -> None:
    """Put ledger and aliases back as the fixture made them."""
    folder = installation.settings.home / "state" / installation.settings.model / "ledger"
    for entry in sorted(folder.glob("*.json"))[len(records) :]:
        entry.unlink()
    installation.ledger._entries.clear()  # noqa: SLF001 - likewise
    installation.registry.set_alias("previous", "1")


def test_ten_thousand_versions_are_no_hindrance(installation: Installation, tmp_path: Path) -> None:
    database, name = installation.settings.home / "mlflow.db", installation.settings.model
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("model_versions", "model_version_tags"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = {"version": "?1", "value": "value || ?1"}
            listed = ", ".join(values.get(column, column) for column in columns)
            copy = f"INSERT INTO {table} SELECT {listed} FROM {table} WHERE version = 1 AND name = ?2"  # noqa: S608 - names of MLflow's own tables
            connection.executemany(copy, [(number, name) for number in range(4, 10_004)])
    request = training_request(seed=11, model=installation.settings.model)
    result = build_artifact(tmp_path / "another", request)
    version = installation.registry.register(request, result, reason="test")
    assert version == "10004"
    assert installation.registry.register(request, result, reason="test") == version
    installation.registry.set_alias("champion", "1")
    look(installation)
    assert standing(installation) == ("1", "1", 4)
