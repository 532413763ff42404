"""The model registry: MLflow, spoken to by explicit address and without its global state.

A registered version is one sealed artifact, the code that runs it and the tags a person reads in the UI.
What is current is said by aliases: champion, challenger and previous.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pydantic_core import to_json

from infra.mlflow_store import EXISTS, MISSING, require_database, store_address, tolerated, tracking
from infra.model_package import (
    REQUEST_ID,
    VERDICT,
    check_artifact,
    log_model,
    log_training,
    version_tags,
)
from training.scorer import Scorer
from training.types import TrainingRequest, TrainingResult

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of type hints of its own
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts
    from mlflow.entities import Run, WebhookEvent
    from mlflow.exceptions import MlflowException

Alias = Literal["champion", "challenger", "previous"]

ALIAS_EVENTS = [WebhookEvent("model_version_alias", action) for action in ("created", "deleted")]
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
        tracking_uri = store_address(home, tracking_uri)
        served = urlsplit(tracking_uri).scheme in ("http", "https")
        registry = cls(
            tracking_uri=tracking_uri,
            model=model,
            experiment=model,
            artifact_root=None if served else (home / "artifacts").as_uri(),
            cache=home / "cache",
        )
        with tracking(registry.tracking_uri, "be opened") as client:
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
        with tracking(self.tracking_uri, f"register training {request.id}") as client:
            if (version := self._version_of(client, request.id)) is not None:
                return version
            with self._run(client, request.id, reason) as run:
                log_training(client, run, request, result)
                model_id, location = log_model(client, run, request, folder)
            with tolerated(EXISTS):
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
        with tracking(self.tracking_uri, "read the aliases") as client, tolerated(MISSING):
            require_database(self.tracking_uri)
            registered = client.get_registered_model(self.model)
            if registered.name != self.model:  # MLflow takes an empty answer for a model without aliases
                raise MlflowException(f"the answer is about model {registered.name!r}")
            found = registered.aliases
        champion, challenger, previous = (
            str(found[alias]) if alias in found else None for alias in ("champion", "challenger", "previous")
        )
        return Aliases(champion=champion, challenger=challenger, previous=previous)

    def exists(self, version: str) -> bool:
        """Whether the registry has `version`; only MLflow's own "no such version" means that it has not."""
        with tracking(self.tracking_uri, f"look for version {version}") as client, tolerated(MISSING):
            client.get_model_version(self.model, version)
            return True
        return False

    def versions(self) -> list[str]:
        """Return the numbers of all registered versions; none where there is no such model."""
        with tracking(self.tracking_uri, "list the versions") as client:
            require_database(self.tracking_uri)
            found, token = [], None
            while True:
                page = client.search_model_versions(f"name = '{self.model}'", page_token=token)
                found += [str(item.version) for item in page]
                if not (token := page.token):
                    return found

    def set_alias(self, alias: Alias, version: str) -> None:
        """Point `alias` to `version`; setting it again changes nothing."""
        with tracking(self.tracking_uri, f"set {alias} to version {version}") as client:
            client.set_registered_model_alias(self.model, alias, version)

    def delete_alias(self, alias: Alias) -> None:
        """Delete `alias`, whether it exists or not."""
        with tracking(self.tracking_uri, f"delete the alias {alias}") as client, tolerated(MISSING):
            client.delete_registered_model_alias(self.model, alias)

    def set_verdict(self, version: str, verdict: str) -> None:
        """Write the verdict of the gates beside the version, for the UI."""
        with tracking(self.tracking_uri, f"tag version {version}") as client:
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
        with tracking(self.tracking_uri, f"attach {path} to version {version}") as client:
            found = client.get_model_version(self.model, version)
            client.log_text(found.run_id or "", text, path)

    def report_gates(self, version: str, verdict: str, gates: Sequence[Mapping[str, object]]) -> None:
        """Write the verdict beside the version and attach the report of its gates."""
        self.log_report(version, "gates.json", {"version": version, "verdict": verdict, "gates": gates})
        self.set_verdict(version, verdict)

    def artifact_folder(self, version: str) -> Path:
        """Return the local folder of the version's sealed artifact, downloaded once where it is remote."""
        with tracking(self.tracking_uri, f"fetch version {version}") as client:
            uri = client.get_model_version_download_uri(self.model, version)
            parts = urlsplit(uri)
            if parts.scheme in ("", "file"):
                return Path(url2pathname(parts.path)) / ARTIFACT_IN_MODEL
            cached = self.cache / hashlib.sha256(uri.encode()).hexdigest()[:16]
            if not cached.is_dir():
                self._download(f"{uri}/{ARTIFACT_IN_MODEL}", cached)
            return cached

    def announce(self, url: str, secret: str) -> None:
        """Let MLflow tell `url` whenever an alias of any model is set or deleted, signed with `secret`.

        The webhook is named `floodmark-MODEL`; one of that name is changed, and no other is touched.
        """
        name = f"floodmark-{self.model}"
        with tracking(self.tracking_uri, f"create the webhook {name}") as client:
            token: str | None = None
            while True:
                page = client.list_webhooks(page_token=token)
                if found := [webhook for webhook in page if webhook.name == name]:
                    client.update_webhook(found[0].webhook_id, url=url, secret=secret, status="ACTIVE")
                    return
                if not (token := page.token):
                    break
            client.create_webhook(name, url, list(ALIAS_EVENTS), secret=secret)

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

    @contextmanager
    def _run(self, client: MlflowClient, request_id: str, reason: str) -> Iterator[Run]:
        """Yield the request's run, which a killed call may have left; in the end no run of ours is open."""
        experiment = client.get_experiment_by_name(self.experiment)
        experiment_id = (
            client.create_experiment(self.experiment, self.artifact_root)
            if experiment is None
            else experiment.experiment_id
        )
        others = f"attributes.status = 'RUNNING' AND tags.`{REQUEST_ID}` != '{request_id}'"
        for abandoned in client.search_runs([experiment_id], others):  # one training is in flight at a time
            client.set_terminated(abandoned.info.run_id, "KILLED")
        found = client.search_runs([experiment_id], f"tags.`{REQUEST_ID}` = '{request_id}'", max_results=1)
        tags = {REQUEST_ID: request_id, "mlflow.note.content": reason}
        name = f"retraining {request_id}"
        run = found[0] if found else client.create_run(experiment_id, tags=tags, run_name=name)
        try:
            yield run
        except BaseException:  # cancelled and timed out, too
            with suppress(Exception):
                client.set_terminated(run.info.run_id, "KILLED")
            raise
        client.set_terminated(run.info.run_id)

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
