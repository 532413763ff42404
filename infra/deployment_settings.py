"""What is deployed for a team, and when it runs: the settings in `[deployment]`."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

CONTROL_POOL, TRAINING_POOL = "floodmark-control", "floodmark-training"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings:
    """Schedules are cron expressions; an empty one is none.

    Attributes:
        source: The folder or s3://bucket/prefix whose windows are taken.
        control_pool: The work pool of everything but trainings.
        training_pool: The work pool of trainings: its workers run where the ranks are launched.
        monitor_schedule: When new windows are looked for.
        retrain_schedule: When a training is looked for that no event has started.
        reconcile_schedule: When the ledger follows what people did in the registry.
        score_schedule: When windows are scored that no champion has scored.
        timezone: The IANA time zone of the schedules.
        worker_configuration: The configuration file's absolute path on the workers' machines; that of the
            file which is deployed where None.
    """

    source: str | None = None
    control_pool: str = CONTROL_POOL
    training_pool: str = TRAINING_POOL
    monitor_schedule: str = "*/5 * * * *"
    retrain_schedule: str = "7 * * * *"
    reconcile_schedule: str = "*/10 * * * *"
    score_schedule: str = "37 * * * *"
    timezone: str = "UTC"
    worker_configuration: str | None = None

    def __post_init__(self) -> None:
        if self.source is not None and not self.source.strip():
            raise ValueError("source is empty; name a folder or s3://bucket/prefix")
        for name in ("control_pool", "training_pool"):
            pool = getattr(self, name)
            if not pool or set(pool) & set("/%&<>"):  # as Prefect forbids
                raise ValueError(
                    f"{name} is {pool!r}; a work pool's name is not empty and has none of / % & < >"
                )
        _require_timezone(self.timezone)
        for name in ("monitor_schedule", "retrain_schedule", "reconcile_schedule", "score_schedule"):
            if getattr(self, name):
                _require_cron(name, getattr(self, name))
        place = self.worker_configuration
        if place is not None and not place.startswith("/"):
            raise ValueError(f"worker_configuration is {place!r}; it must be an absolute path")


def _require_timezone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # for a wrong name it raises any of them
        allowed = "allowed are IANA time zones such as UTC or Europe/Berlin"
        raise ValueError(f"timezone is {name!r}; {allowed}") from error


def _require_cron(name: str, cron: str) -> None:
    try:
        next(CronSim(cron, datetime.now(UTC)))
    except CronSimError as error:  # also a day that no month of them has
        raise ValueError(
            f"{name} is {cron!r}, which is no cron expression that ever fires: {error};"
            " an example is '*/5 * * * *'"
        ) from error
    except StopIteration as error:
        raise ValueError(f"{name} is {cron!r}, which fires in none of the next 50 years") from error
