"""The doctor's checks of Prefect: its server, what is deployed, the automation, and the pools' workers."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound

from flows.deploy import automation_of, deployments_of
from flows.doctor import Check, Examination, same_version
from infra import probes
from infra.prefect_server import API_URL
from monitoring import diagnosis
from monitoring.diagnosis import Deployment, Finding, Pool, fault, sound, warning

HEARTBEAT_ALLOWED = timedelta(minutes=2)
"""A worker tells of itself every 30 seconds by default."""


def prefect_server(examination: Examination) -> Iterator[Finding]:
    """Ask the server for its version and time; then look at what this model has there."""
    url = os.environ.get(API_URL, "").rstrip("/")
    if not url:
        yield fault("prefect", f"{API_URL} is not set, so nothing deployed can be seen", f"set {API_URL}")
        return
    told, offset = probes.http_answer(f"{url}/admin/version")
    yield from same_version("prefect", told.strip('"'), probes.installed("prefect"))
    if offset is not None:
        yield diagnosis.clock("the Prefect server", offset)
    if examination.settings.deployment.source is None:
        yield warning("deployment", "[deployment] source is not set: nothing is deployed", "see README")
        return
    with get_client(sync_client=True) as client:
        yield from _deployed(client, examination)


def _deployed(client: SyncPrefectClient, examination: Examination) -> Iterator[Finding]:
    model, wanted = examination.settings.model, examination.settings.deployment
    deployments = deployments_of(examination.settings)
    expected = {f"{item.flow.name}/{model}": [item.cron] if item.cron else [] for item in deployments}
    yield from diagnosis.schedules(expected, {name: _deployment(client, name) for name in expected})
    yield _automation(client, automation_of(model))
    pools = dict.fromkeys((wanted.control_pool, wanted.training_pool))
    yield from diagnosis.workers({name: _pool(client, name) for name in pools}, HEARTBEAT_ALLOWED)


def _deployment(client: SyncPrefectClient, name: str) -> Deployment | None:
    try:
        found = client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None
    crons = [
        (item.schedule.cron, item.active)
        for item in found.schedules
        if isinstance(item.schedule, CronSchedule)
    ]
    return Deployment(
        paused=found.paused,
        active_schedules=tuple(cron for cron, active in crons if active),
        inactive_schedules=tuple(cron for cron, active in crons if not active),
    )


def _automation(client: SyncPrefectClient, name: str) -> Finding:
    found = client.read_automations_by_name(name)
    if not found:
        return fault("automation", f"{name} is missing: drift starts no training", "`floodmark deploy`")
    if not any(automation.enabled for automation in found):
        return fault("automation", f"{name} is switched off", f"`prefect automation resume {name}`")
    return sound("automation", f"{name} is switched on")


def _pool(client: SyncPrefectClient, name: str) -> Pool | None:
    try:
        found = client.read_work_pool(name)
        workers = client.read_workers_for_work_pool(name)
    except ObjectNotFound:
        return None
    heard = [worker.last_heartbeat_time for worker in workers if worker.last_heartbeat_time is not None]
    return Pool(paused=found.is_paused, newest_heartbeat=datetime.now(UTC) - max(heard) if heard else None)


CHECKS: dict[str, Check] = {"prefect": prefect_server}
