"""What `floodmark deploy` brings about in Prefect: pools, deployments, their schedules, and the automation.

What is there and as it should be is left alone, and so is all that has other names: a person's own schedules,
a schedule that was paused, a pool's template. Of a deployment, only what is stated here is compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import AutomationCore, EventTrigger, RunDeployment
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema
from prefect.workers.process import ProcessWorker

from flows import deployments
from infra.deployment_settings import CONTROL_POOL, TRAINING_POOL
from infra.settings import Settings
from training.errors import ConfigurationError

DEFAULT_POOLS = (CONTROL_POOL, TRAINING_POOL)
SLUG = "floodmark"
"""Of the one schedule of a deployment that is ours."""

EVENTS = {"floodmark.drift.detected", "floodmark.training.due"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done about one object in Prefect."""

    kind: Literal["work pool", "deployment", "schedule", "automation"]
    name: str
    outcome: Literal["created", "changed", "unchanged"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One deployment: runs of a flow on a pool, one at a time.

    Attributes:
        cron: When it runs by itself; empty for never.
        waits: Whether a run that is started beside another waits for it; it is cancelled otherwise, as are
            the many that an outage has left, because the running one takes all that is owed.
    """

    flow: Flow[..., Any]
    pool: str
    cron: str
    timezone: str
    waits: bool
    tags: tuple[str, ...]


def deploy(client: SyncPrefectClient, settings: Settings, configuration: Path | None) -> Iterator[Change]:
    """Bring everything about, and yield what was done, one object after the other.

    Args:
        client: Of the Prefect server.
        settings: Read from `configuration`.
        configuration: The file's absolute path; None where there is only the environment.

    Raises:
        ConfigurationError: No source is stated, or a pool of one's own naming does not exist.
    """
    wanted, model = settings.deployment, settings.model
    if wanted.source is None:
        raise ConfigurationError(
            "there is no source to deploy for", hint="state source in the configuration's [deployment]"
        )
    pools = dict.fromkeys((wanted.control_pool, wanted.training_pool))
    require_pools(client, [pool for pool in pools if pool not in DEFAULT_POOLS])
    for pool in pools:
        yield deploy_pool(client, pool)
    place = wanted.worker_configuration or (str(configuration) if configuration else None)
    parameters = {"model": model, "configuration": place}
    folder = str(Path(place).parent) if place else str(Path.cwd())
    ids: dict[str, UUID] = {}
    for item in deployments_of(settings):
        ids[item.flow.name], changes = deploy_flow(client, item, model, parameters, folder)
        yield from changes
    yield deploy_automation(client, model, ids[deployments.retrain.name])


def deployments_of(settings: Settings) -> list[Wanted]:
    """Return all deployments of a model."""
    wanted = settings.deployment
    tags = ("floodmark", f"model:{settings.model}")
    control, training = wanted.control_pool, wanted.training_pool
    return [
        Wanted(flow=flow, pool=pool, cron=cron, timezone=wanted.timezone, waits=waits, tags=tags)
        for flow, pool, cron, waits in (
            (deployments.monitor, control, wanted.monitor_schedule, False),
            (deployments.retrain, training, wanted.retrain_schedule, True),
            (deployments.reconcile, control, wanted.reconcile_schedule, False),
            (deployments.score, control, wanted.score_schedule, False),
        )
    ]


def require_pools(client: SyncPrefectClient, names: list[str]) -> None:
    """Refuse names of pools that do not exist: who names a pool has made it, or has mistyped it.

    Raises:
        ConfigurationError: One does not exist; nothing was changed.
    """
    known = {pool.name for pool in client.read_work_pools()}
    if missing := [name for name in names if name not in known]:
        raise ConfigurationError(
            f"there is no work pool {' and no '.join(missing)};"
            f" there are {', '.join(sorted(known)) or 'none'}",
            hint=f"`prefect work-pool create {missing[0]} --type process`; nothing was changed",
        )


def automation_of(model: str) -> str:
    """Return the name of a model's automation."""
    return f"floodmark-retrain-{model}"


def deploy_pool(client: SyncPrefectClient, name: str) -> Change:
    """Create a work pool of type process where there is none of this name."""
    try:
        found = client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
        return Change(kind="work pool", name=name, outcome="created", detail="type process")
    return Change(kind="work pool", name=name, outcome="unchanged", detail=f"type {found.type}")


def deploy_flow(
    client: SyncPrefectClient, wanted: Wanted, model: str, parameters: dict[str, Any], folder: str
) -> tuple[UUID, list[Change]]:
    """Create or change one deployment and its schedule; return its id and what was done."""
    flow, name = wanted.flow, f"{wanted.flow.name}/{model}"
    strategy = ConcurrencyLimitStrategy.ENQUEUE if wanted.waits else ConcurrencyLimitStrategy.CANCEL_NEW
    state: dict[str, Any] = {
        "version": flow.version,
        "description": flow.description,
        "parameters": parameters,
        "tags": list(wanted.tags),
        "work_pool_name": wanted.pool,
        "entrypoint": f"{deployments.__name__}.{flow.fn.__name__}",
        "job_variables": {"working_dir": folder},
        "concurrency_options": ConcurrencyOptions(collision_strategy=strategy),
        "enforce_parameter_schema": True,
    }
    schema = parameter_schema(flow.fn).model_dump_for_openapi()
    try:
        found = client.read_deployment_by_name(name)
    except ObjectNotFound:
        made = client.create_deployment(
            flow_id=client.create_flow(flow),
            name=model,
            concurrency_limit=1,
            parameter_openapi_schema=schema,
            pull_steps=[],
            **state,
        )
        created = Change(kind="deployment", name=name, outcome="created")
        return made, [created, *deploy_schedule(client, client.read_deployment(made), wanted, name)]
    differing = [key for key, value in state.items() if getattr(found, key) != value]
    if found.parameter_openapi_schema != schema:
        state["parameter_openapi_schema"] = schema
        differing.append("parameter_openapi_schema")
    if differing:
        changed = {key: state[key] for key in differing}
        client.update_deployment(found.id, DeploymentUpdate(**changed))
    change = Change(
        kind="deployment",
        name=name,
        outcome="changed" if differing else "unchanged",
        detail=", ".join(differing),
    )
    return found.id, [change, *deploy_schedule(client, found, wanted, name)]


def deploy_schedule(
    client: SyncPrefectClient, found: DeploymentResponse, wanted: Wanted, name: str
) -> list[Change]:
    """Let a deployment's own schedule be as wanted; whether it is paused, people decide."""
    own = next((item for item in found.schedules if item.slug == SLUG), None)
    if not wanted.cron:
        if own is None:
            return []
        client.delete_deployment_schedule(found.id, own.id)
        return [Change(kind="schedule", name=name, outcome="changed", detail="removed")]
    schedule = CronSchedule(cron=wanted.cron, timezone=wanted.timezone)
    if own is None:
        client.create_deployment_schedules(
            found.id, [DeploymentScheduleCreate(schedule=schedule, active=True, slug=SLUG)]
        )
        return [Change(kind="schedule", name=name, outcome="created", detail=wanted.cron)]
    if own.schedule == schedule:
        return [Change(kind="schedule", name=name, outcome="unchanged", detail=wanted.cron)]
    client.update_deployment_schedule(found.id, own.id, schedule=schedule)
    return [Change(kind="schedule", name=name, outcome="changed", detail=wanted.cron)]


def deploy_automation(client: SyncPrefectClient, model: str, deployment: UUID) -> Change:
    """Create or change the automation that starts a training; whether it is switched off, people decide."""
    name = automation_of(model)
    payload = {key: _from_event(f"event.payload.{key}") for key in ("window", "champion")}
    parameters = {"reason": _from_event("event.event"), **payload}
    wanted = AutomationCore(
        name=name,
        description="Starts a training when one may be due; the ledger says whether it is",
        enabled=True,
        trigger=EventTrigger(
            expect=EVENTS,
            match={"prefect.resource.id": f"floodmark.model.{model}"},
            posture="Reactive",
            threshold=1,
        ),
        actions=[RunDeployment(source="selected", deployment_id=deployment, parameters=parameters)],
    )
    found = client.read_automations_by_name(name)
    if not found:
        client.create_automation(wanted)
        return Change(kind="automation", name=name, outcome="created")
    compared = {"description", "trigger", "actions"}
    if _values(found[0], compared) == _values(wanted, compared):
        return Change(kind="automation", name=name, outcome="unchanged")
    client.update_automation(found[0].id, wanted.model_copy(update={"enabled": found[0].enabled}))
    return Change(kind="automation", name=name, outcome="changed")


def _from_event(place: str) -> dict[str, str]:
    """Return a parameter that is taken from the event; empty where the event has none."""
    return {"__prefect_kind": "jinja", "template": f"{{{{ {place} }}}}"}


def _values(automation: AutomationCore, keys: set[str]) -> dict[str, Any]:
    """Return what is compared, without the ids that the server adds and the order that sets have not."""
    values = automation.model_dump(mode="json", include=keys)
    values["trigger"]["expect"].sort()
    values["trigger"].pop("id", None)
    return values
