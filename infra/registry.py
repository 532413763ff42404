"""The model registry: MLflow, spoken to by explicit address and without its global state.

A registered version is one sealed artifact, the code that runs it and the tags a person reads in the UI.
What is current is said by aliases: champion, challenger and previous.
"""

import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

from pydantic_core import to_json

from infra.model_package import (
    REQUEST_ID,
    VERDICT,
    check_artifact,
    run_metrics,
    run_params,
    save_model,
    version_tags,
)
from training.errors import ConfigurationError, RetryableError
from training.scorer import Scorer
from training.types import TrainingRequest, TrainingResult

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of type hints of its own
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts
    from mlflow.entities import LoggedModelOutput, Run
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model
    from sqlalchemy.exc import SQLAlchemyError

Alias = Literal["champion", "challenger", "previous"]

MISSING = "RESOURCE_DOES_NOT_EXIST"
EXISTS = "RESOURCE_ALREADY_EXISTS"
INVALID = "INVALID_PARAMETER_VALUE"
STORES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")

ARTIFACT_IN_MODEL = "artifacts/detector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """The versions that the aliases point to at one moment; None where there is no such alias."""

    champion: str | None
    challenger: str | None
    previous: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """One registered model of one MLflow store.

    `artifact_root` is where a new experiment keeps its artifacts (None: the server decides), and
    `cache` the folder for artifacts that must be downloaded to be read. Every method raises
    ConfigurationError when the version it is given does not exist, and RetryableError when the store fails.
    """

    tracking_uri: str = field(repr=False)
    model: str
    experiment: str
    artifact_root: str | None
    cache: Path

    @classmethod
    def open(cls, home: Path, model: str, tracking_uri: str | None = None) -> "Registry":
        """Open the store at `tracking_uri`, or the SQLite one under `home`, which is created.

        Raises:
            ConfigurationError: MLflow has no store of that kind, or cannot use the folder.
            RetryableError: The store does not answer.
        """
        home = home.absolute()
        if "%" in str(home):
            raise ConfigurationError(
                f"MLflow does not find models again under {home}",
                hint="name a folder without a percent sign in its path with --home",
            )
        if tracking_uri is None:
            _create_database(home / "mlflow.db")
            tracking_uri = _sqlite_uri(home / "mlflow.db")
        scheme = urlsplit(tracking_uri).scheme.split("+")[0]
        if scheme not in STORES:
            raise ConfigurationError(
                f"the tracking URI is {without_password(tracking_uri)}",
                hint=f"allowed are URIs that begin with {', '.join(f'{store}:' for store in STORES)}",
            )
        served = scheme in ("http", "https")
        registry = cls(
            tracking_uri=tracking_uri,
            model=model,
            experiment=model,
            artifact_root=None if served else (home / "artifacts").as_uri(),
            cache=home / "cache",
        )
        with registry._tracking("be opened") as client:
            client.search_experiments(max_results=1)
        return registry

    def register(self, request: TrainingRequest, result: TrainingResult, *, reason: str) -> str:
        """Register the artifact of a training and return its version; a request has one version at most.

        It can be killed anywhere and called again. `reason` says in the UI why there was a training.

        Raises:
            InvalidArtifactError: The artifact is not sealed, or is not the one that `result` describes.
        """
        folder = Path(result.artifact)
        check_artifact(folder, request, result)
        with self._tracking(f"register training {request.id}") as client:
            if (version := self._version_of(client, request.id)) is not None:
                return version
            run = self._run(client, request.id, reason)
            metrics = run_metrics(result, at=run.info.start_time)
            client.log_batch(run.info.run_id, metrics=metrics, params=run_params(request))
            model_id, location = _log_model(client, run, request, folder)
            client.set_terminated(run.info.run_id)
            with _tolerated(EXISTS):
                client.create_registered_model(self.model)
            own = client.create_model_version(
                self.model, location, run.info.run_id, tags=version_tags(request, result), model_id=model_id
            )
            # Another process, or MLflow sending a request twice, may have registered it too: the first stays.
            first = self._version_of(client, request.id) or str(own.version)
            if first != str(own.version):
                client.delete_model_version(self.model, str(own.version))
            return first

    def aliases(self) -> Aliases:
        """Return all aliases, read in one call; only MLflow's own "no such model" means that none exist."""
        found: dict[str, object] = {}
        with self._tracking("read the aliases") as client, _tolerated(MISSING):
            self._require_database()
            registered = client.get_registered_model(self.model)
            if registered.name != self.model:  # MLflow takes an empty answer for a model without aliases
                raise MlflowException(f"the answer is about model {registered.name!r}")
            found = registered.aliases
        champion, challenger, previous = (
            str(found[alias]) if alias in found else None for alias in ("champion", "challenger", "previous")
        )
        return Aliases(champion=champion, challenger=challenger, previous=previous)

    def _require_database(self) -> None:
        """Raise OSError where the SQLite file is gone: MLflow would go on with a new, empty one."""
        if self.tracking_uri.startswith("sqlite:///") and "?" not in self.tracking_uri:
            Path(unquote(self.tracking_uri.removeprefix("sqlite:///"))).stat()

    def exists(self, version: str) -> bool:
        """Whether the registry has `version`; only MLflow's own "no such version" means that it has not."""
        with self._tracking(f"look for version {version}") as client, _tolerated(MISSING):
            client.get_model_version(self.model, version)
            return True
        return False

    def set_alias(self, alias: Alias, version: str) -> None:
        """Point `alias` to `version`; setting it again changes nothing."""
        with self._tracking(f"set {alias} to version {version}") as client:
            client.set_registered_model_alias(self.model, alias, version)

    def delete_alias(self, alias: Alias) -> None:
        """Delete `alias`, whether it exists or not."""
        with self._tracking(f"delete the alias {alias}") as client, _tolerated(MISSING):
            client.delete_registered_model_alias(self.model, alias)

    def set_verdict(self, version: str, verdict: str) -> None:
        """Write the verdict of the gates beside the version, for the UI."""
        with self._tracking(f"tag version {version}") as client:
            client.set_model_version_tag(self.model, version, VERDICT, verdict)

    def log_report(self, version: str, name: str, content: str | Mapping[str, object]) -> None:
        """Attach a report to the version's run as `reports/NAME`; a mapping is written as strict JSON."""
        if not isinstance(content, str):
            content = to_json(content, indent=2, inf_nan_mode="strings").decode()
        self._attach(version, f"reports/{name}", content)

    def log_window_page(self, version: str, window: str, page: str) -> None:
        """Attach a window's page to the run of the version that scored it, as `windows/WINDOW/page.html`."""
        self._attach(version, f"windows/{window}/page.html", page)

    def _attach(self, version: str, path: str, text: str) -> None:
        with self._tracking(f"attach {path} to version {version}") as client:
            found = client.get_model_version(self.model, version)
            client.log_text(found.run_id or "", text, path)

    def report_gates(self, version: str, verdict: str, gates: Sequence[Mapping[str, object]]) -> None:
        """Write the verdict beside the version and attach the report of its gates."""
        self.log_report(version, "gates.json", {"version": version, "verdict": verdict, "gates": gates})
        self.set_verdict(version, verdict)

    def artifact_folder(self, version: str) -> Path:
        """Return the local folder of the version's sealed artifact, downloaded once where it is remote."""
        with self._tracking(f"fetch version {version}") as client:
            uri = client.get_model_version_download_uri(self.model, version)
            parts = urlsplit(uri)
            if parts.scheme in ("", "file"):
                return Path(url2pathname(parts.path)) / ARTIFACT_IN_MODEL
            cached = self.cache / hashlib.sha256(uri.encode()).hexdigest()[:16]
            if not cached.is_dir():
                self._download(f"{uri}/{ARTIFACT_IN_MODEL}", cached)
            return cached

    def scorer(self, version: str) -> Scorer:
        """Load the version's scorer.

        Raises:
            InvalidArtifactError: The stored artifact is not what was registered.
        """
        return Scorer.load(self.artifact_folder(version))

    def _version_of(self, client: MlflowClient, request_id: str) -> str | None:
        """Return the first version that was registered for a request."""
        tagged = f"name = '{self.model}' AND tags.`{REQUEST_ID}` = '{request_id}'"
        found = client.search_model_versions(tagged)
        return str(min(int(item.version) for item in found)) if found else None

    def _run(self, client: MlflowClient, request_id: str, reason: str) -> Run:
        """Return the request's run: the one that a killed call left, or a new one."""
        experiment = client.get_experiment_by_name(self.experiment)
        experiment_id = (
            client.create_experiment(self.experiment, self.artifact_root)
            if experiment is None
            else experiment.experiment_id
        )
        if found := client.search_runs(
            [experiment_id], f"tags.`{REQUEST_ID}` = '{request_id}'", max_results=1
        ):
            return found[0]
        tags = {REQUEST_ID: request_id, "mlflow.note.content": reason}
        return client.create_run(experiment_id, tags=tags, run_name=f"retraining {request_id}")

    def _download(self, uri: str, target: Path) -> None:
        """Download beside `target` and rename, so that `target` is whole or absent."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.cache, prefix=".") as scratch:
            fetched = download_artifacts(artifact_uri=uri, dst_path=scratch, tracking_uri=self.tracking_uri)
            try:
                Path(fetched).rename(target)
            except OSError:
                if not target.is_dir():  # otherwise another process was faster
                    raise

    @contextmanager
    def _tracking(self, doing: str) -> Iterator[MlflowClient]:
        """Yield a client, and turn whatever the store throws into an error that says what to do."""
        try:
            yield MlflowClient(self.tracking_uri, self.tracking_uri)
        except (MlflowException, SQLAlchemyError, OSError) as error:
            text = without_password(f"tracking server {self.tracking_uri} could not {doing}: {error}")
            if getattr(error, "error_code", None) in (MISSING, INVALID):
                hint = "look at the model and its versions with `floodmark history` or in the MLflow UI"
                raise ConfigurationError(text, hint=hint) from error
            hint = "run the same command again once the tracking server answers"
            raise RetryableError(text, hint=hint) from error


@contextmanager
def _tolerated(error_code: str) -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        if error.error_code != error_code:
            raise


def without_password(text: str) -> str:
    """Return `text` with the user and password of every URI in it masked."""
    return re.sub(r"://[^/\s]*@", "://***@", text)


def _sqlite_uri(path: Path) -> str:
    return f"sqlite:///{quote(str(path))}"


def _create_database(path: Path) -> None:
    """Let MLflow migrate a database aside and link it to `path`: nobody ever meets half of one.

    Raises:
        ConfigurationError: The folder cannot be written.
    """
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".mlflow-") as scratch:
            fresh = Path(scratch) / path.name
            MlflowClient(_sqlite_uri(fresh)).search_experiments(max_results=1)
            with suppress(FileExistsError):  # another process was faster
                path.hardlink_to(fresh)
    except (OSError, SQLAlchemyError) as error:
        raise ConfigurationError(
            f"the registry's database {path} cannot be created: {error}",
            hint="name a folder that can be written with --home",
        ) from error


def _log_model(client: MlflowClient, run: Run, request: TrainingRequest, folder: Path) -> tuple[str, str]:
    """Store the model and return its id and location; one that a killed call left stays unregistered."""
    logged = client.create_logged_model(
        run.info.experiment_id,
        name="detector",
        source_run_id=run.info.run_id,
        tags={REQUEST_ID: request.id},
    )
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
    with TemporaryDirectory(prefix="floodmark-") as scratch:
        model = Path(scratch) / "model"
        save_model(model, request, folder, Model(run_id=run.info.run_id, model_id=logged.model_id))
        client.log_model_artifacts(logged.model_id, str(model))
    client.finalize_logged_model(logged.model_id, "READY")
    return logged.model_id, logged.artifact_location
