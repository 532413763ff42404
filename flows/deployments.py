"""The flows that a team deploys with `floodmark deploy`: thin ones, which keep no state of their own.

The ledger says what is owed. A run that finds nothing owed ends well and says so: an event, a schedule and a
person may start as many runs as they like, and what a lost one would have done, the next does.
"""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import BaseModel, ConfigDict, Field

from flows.cli import silence_usage_reports
from flows.retries import when_retryable
from infra.settings import MODEL_NAME, Settings, load_settings
from monitoring.records import Lane
from training.errors import ConfigurationError

if TYPE_CHECKING:
    from flows.run_log import RunLog

VERSION = version("floodmark")
HOUR_S = 3_600
RETRIES: dict[str, Any] = {
    "retries": 3,
    "retry_delay_seconds": [5, 30, 120],
    "retry_condition_fn": when_retryable,
    "cache_policy": NO_CACHE,
}
"""Flows of Prefect try again after any error; tasks after those that may pass."""

Model = Annotated[str, Field(pattern=MODEL_NAME)]
Configuration = Annotated[Path | None, Field()]
Url = Annotated[str | None, Field(min_length=1)]
Identifier = Annotated[str | None, Field(max_length=500)]
Reason = Annotated[str, Field(min_length=1, max_length=300)]


class Files(BaseModel):
    """A file whose rows are to be scored, and the one that is written; both on the worker's machine."""

    model_config = ConfigDict(extra="forbid")

    input: Path = Field(description="A .parquet, .csv or .csv.gz file")
    output: Path = Field(description="A new .parquet or .csv file")


@flow(
    name="floodmark-monitor",
    flow_run_name="monitor {model}: {reason}",
    version=VERSION,
    timeout_seconds=12 * HOUR_S,
)
def monitor(
    model: Model, configuration: Configuration = None, source: Url = None, reason: Reason = "schedule"
) -> State[None]:
    """Take the new windows of a source: data contract, scores, drift, decision, messages to people.

    Args:
        model: The registered model's name
        configuration: The configuration file on the worker's machine; floodmark.toml in its folder if empty
        source: The folder or s3://bucket/prefix with the windows; that of the configuration if empty
        reason: Why this run was started, for those who read its name
    """
    del reason  # it names the run
    settings = configured(model, configuration)
    return ended(take_steps(settings, source_of(settings, source), "windows"))


@flow(
    name="floodmark-retrain",
    flow_run_name="retrain {model}: {reason}",
    version=VERSION,
    timeout_seconds=7 * 24 * HOUR_S,
)
def retrain(  # noqa: PLR0913, PLR0917 - parameters of a flow run
    model: Model,
    configuration: Configuration = None,
    source: Url = None,
    reason: Reason = "schedule",
    window: Identifier = None,
    champion: Identifier = None,
) -> State[None]:
    """Train, register, judge and promote what the ledger asks for; end well if it asks for nothing.

    Args:
        model: The registered model's name
        configuration: The configuration file on the worker's machine; floodmark.toml in its folder if empty
        source: The folder or s3://bucket/prefix with the windows; that of the configuration if empty
        reason: Why this run was started, for those who read its name
        window: The window that the event told of
        champion: The champion that the event told of; the ledger says which one counts
    """
    del reason, window, champion  # for those who read of the run: what is trained on, the ledger says
    settings = configured(model, configuration)
    return ended(take_steps(settings, source_of(settings, source), "training"))


@flow(
    name="floodmark-reconcile",
    flow_run_name="reconcile {model}: {reason}",
    version=VERSION,
    timeout_seconds=HOUR_S,
)
def reconcile(model: Model, configuration: Configuration = None, reason: Reason = "schedule") -> State[None]:
    """Let the ledger follow what people did to the alias champion in MLflow, and watches that are over.

    Args:
        model: The registered model's name
        configuration: The configuration file on the worker's machine; floodmark.toml in its folder if empty
        reason: Why this run was started, for those who read its name
    """
    del reason  # it names the run
    return ended(catch_up(configured(model, configuration)))


@flow(
    name="floodmark-score",
    flow_run_name="score {model}: {reason}",
    version=VERSION,
    timeout_seconds=12 * HOUR_S,
)
def score(
    model: Model,
    configuration: Configuration = None,
    source: Url = None,
    files: Files | None = None,
    reason: Reason = "schedule",
) -> State[None]:
    """Score with the champion: a file, or all windows of a source that have no scores yet.

    Args:
        model: The registered model's name
        configuration: The configuration file on the worker's machine; floodmark.toml in its folder if empty
        source: The folder or s3://bucket/prefix with the windows; that of the configuration if empty
        files: One file to score instead of a source's windows
        reason: Why this run was started, for those who read its name
    """
    del reason  # it names the run
    settings = configured(model, configuration)
    if files is not None:
        return ended(score_one(settings, files))
    return ended(score_waiting(settings, source_of(settings, source)))


@task(name="take the steps owed", **RETRIES)
def take_steps(settings: Settings, source: str, lane: Lane) -> "RunLog":
    """Take every step of a lane."""
    from flows.loop import run_loop  # noqa: PLC0415 - MLflow must find its usage reports silenced
    from flows.run_log import RunLog  # noqa: PLC0415 - likewise

    log = RunLog()
    run_loop(settings, source, follow=False, report=log, lanes=(lane,))
    return log


@task(name="catch up with the registry", **RETRIES)
def catch_up(settings: Settings) -> "RunLog":
    """Do what `floodmark reconcile` does."""
    from flows.installation import open_installation  # noqa: PLC0415 - as above
    from flows.reconcile import reconcile_now  # noqa: PLC0415 - likewise
    from flows.run_log import RunLog  # noqa: PLC0415 - likewise

    log = RunLog()
    reconcile_now(open_installation(settings), log.tell)
    return log


@task(name="score a file", **RETRIES)
def score_one(settings: Settings, files: Files) -> "RunLog":
    """Do what `floodmark score` does."""
    from flows.contract import champion_of  # noqa: PLC0415 - as above
    from flows.installation import open_installation  # noqa: PLC0415 - likewise
    from flows.run_log import RunLog  # noqa: PLC0415 - likewise
    from flows.score import score_file  # noqa: PLC0415 - likewise

    installation, log = open_installation(settings), RunLog()
    champion = champion_of(installation, installation.ledger.load())
    scored = score_file(champion, files.input, files.output, settings.csv, force=False)
    log.say(f"{files.output}: {scored.rows} rows by version {champion.version}, {scored.alerts} alerts")
    return log


@task(name="score what has no scores", **RETRIES)
def score_waiting(settings: Settings, source: str) -> "RunLog":
    """Score the windows of a source that have no scores yet."""
    from flows.installation import open_installation  # noqa: PLC0415 - as above
    from flows.run_log import RunLog  # noqa: PLC0415 - likewise
    from flows.score_windows import score_unscored  # noqa: PLC0415 - likewise

    log = RunLog()
    for line in score_unscored(open_installation(settings), source):
        log.say(line)
    return log


def configured(model: str, configuration: Path | None) -> Settings:
    """Read the configuration on the machine where the run is.

    Raises:
        ConfigurationError: It is missing or wrong.
    """
    silence_usage_reports()
    settings = load_settings(configuration, {"model": model})
    settings.require_columns()
    settings.home.mkdir(parents=True, exist_ok=True)
    return settings


def source_of(settings: Settings, source: str | None) -> str:
    """Return the source that a run was given, or that of the configuration.

    Raises:
        ConfigurationError: There is none.
    """
    found = source or settings.deployment.source
    if found is None:
        raise ConfigurationError(
            "no source of windows is known",
            hint="state source in the configuration's [deployment], or as a parameter of the run",
        )
    return found


def ended(log: "RunLog") -> State[None]:
    """Say what a run did as its final state; a training that failed fails its run."""
    return Failed(message=log.summary) if log.failed_trainings else Completed(message=log.summary)
