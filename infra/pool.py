"""Where trainings run: a pool takes a job and returns its result, or raises what the failing rank said."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from infra import rank_environment
from infra.launch_settings import LaunchSettings
from infra.mpi_launcher import run_with_mpi
from infra.supervisor import supervise
from training import artifact
from training.errors import (
    ConfigurationError,
    FloodmarkError,
    InvalidArtifactError,
    RetryableError,
    TrainingFailedError,
)
from training.launch_plan import Failure, LaunchPlan
from training.outcome import ERRORS, RESULT
from training.types import TrainingJob, TrainingResult

LOGS = "logs"
TEMPORARY = "tmp"
DESCRIPTION = "job.json"
Report = Callable[[dict[str, Any]], None]
"""Takes what a training reports while it runs: `started`, `progress` and `restarting` events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where ranks run: on `hosts`, each as `name:slots`, or wherever `discovery` says from time to time."""

    hosts: tuple[str, ...] = ()
    discovery: str | None = None


Place = Callable[[LaunchSettings, int], Placement]
"""What distinguishes a pool: settings and a number of ranks in, ValueError where they do not fit."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Trains jobs on the places that `place` finds."""

    place: Place

    def __call__(
        self,
        job: TrainingJob,
        folder: Path,
        *,
        timeout: float,
        settings: LaunchSettings = LaunchSettings(),  # noqa: B008 - it is frozen
        report: Report = lambda _: None,
    ) -> TrainingResult:
        """Train `job`, with `folder` for the pool's own files, within `timeout` seconds.

        A result that is already there for the same request is returned at once. However the call ends, by its
        timeout, an exception or the death of this process, no rank is left running on any host.

        Raises:
            ConfigurationError: The settings do not fit this pool, or its hosts cannot be used.
            TrainingFailedError: A rank failed and would fail again; with its own message and traceback.
            RetryableError: The time ran out, or ranks or a host were lost, frozen or out of step.
        """
        try:
            placement = self.place(settings, job.request.world_size)
        except ValueError as error:
            raise ConfigurationError(str(error), hint="see [training] in floodmark.toml") from error
        if placement.discovery is not None:
            job = replace(job, fewest_ranks=settings.min_ranks)
        if (finished := _result(job)) is not None:
            return finished
        plan = _plan(job, folder, timeout, settings, placement)
        output = Path(job.output)
        for path in (folder, output):
            path.mkdir(parents=True, exist_ok=True)
        for stale in output.glob(ERRORS):
            stale.unlink()
        (folder / DESCRIPTION).write_text(json.dumps(asdict(job), indent=2) + "\n")
        run = run_with_mpi if settings.controller == "mpi" else supervise
        with _emptied(folder / TEMPORARY):
            failure = run(plan, folder / "training.log", timeout, report)
        if failure is not None:
            raise _error(failure)
        if (finished := _result(job)) is None:
            raise RetryableError(
                "all ranks ended without an error, and without a result",
                hint=f"No model was written. The logs are {plan.logs}.",
            )
        return finished


def _on_this_machine(_: LaunchSettings, ranks: int) -> Placement:
    """All ranks here; they meet on the loopback interface."""
    return Placement(hosts=(f"localhost:{ranks}",))


def _on_listed_hosts(settings: LaunchSettings, ranks: int) -> Placement:
    """As many as there are slots on each, in the order of the list; this machine is reached without ssh."""
    return Placement(hosts=tuple(map(str, settings.listed_hosts(ranks))))


def _on_discovered_hosts(settings: LaunchSettings, ranks: int) -> Placement:
    """Elastic: the training goes on from its last checkpoint when ranks are lost or the hosts change."""
    return Placement(discovery=settings.discovery(ranks))


POOLS: dict[str, Pool] = {
    "local": Pool(_on_this_machine),
    "hosts": Pool(_on_listed_hosts),
    "elastic": Pool(_on_discovered_hosts),
}
"""The pools by name."""


def _plan(
    job: TrainingJob, folder: Path, timeout: float, settings: LaunchSettings, placement: Placement
) -> LaunchPlan:
    description = folder / DESCRIPTION
    rows = (job.training_rows,) if isinstance(job.training_rows, str) else job.training_rows
    files = (*rows, job.calibration_rows, job.reference_rows, job.held_out_rows, job.output)
    locations = (*files, *filter(None, (job.calibration_anomalies, job.training_anomalies)))
    kept = filter(None, [job.checkpoints])
    shared = (location for location in locations if not location.startswith("s3://"))
    return LaunchPlan(
        command=(sys.executable, "-m", "training.job", str(description)),
        environment=rank_environment.of_ranks((*locations, *kept), job.s3_endpoint_url)
        | {"TMPDIR": str(folder / TEMPORARY)},
        paths=(str(folder), str(description), *shared),
        output=job.output,
        logs=str(folder / LOGS),
        hosts=placement.hosts,
        discovery=placement.discovery,
        fewest_ranks=job.fewest_ranks or job.request.world_size,
        most_ranks=job.request.world_size,
        ssh=settings.ssh_command(),
        interface=settings.interface,
        watchdog_seconds=settings.watchdog_seconds,
        exchange_seconds=max(
            1, round(timeout)
        ),  # a dead peer is noticed at once, a frozen one by the watchdog
        timeline=settings.timeline,
    )


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Keep an empty folder for what ranks leave when they are killed, such as TensorFlow's generated code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _result(job: TrainingJob) -> TrainingResult | None:
    """Return the result of exactly this request, if there is one with a whole artifact."""
    try:
        result = TypeAdapter(TrainingResult).validate_json((Path(job.output) / RESULT).read_bytes())
        artifact.verify(Path(result.artifact))
    except (FileNotFoundError, ValidationError, InvalidArtifactError):
        return None
    return result if result.request_id == job.request.id else None


def _error(failure: Failure) -> FloodmarkError:
    if failure.configuration:
        return ConfigurationError(failure.message, hint=failure.hint)
    kind = RetryableError if failure.retryable else TrainingFailedError
    return kind(failure.message, hint=failure.hint)
