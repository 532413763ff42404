"""What is wrong with an installation: findings from facts that were gathered elsewhere, each with a way out.

A fault stops the loop or lets it go wrong, now or soon; a warning does not yet. What could not be looked at
is a fault, never sound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from monitoring.history import BOOKKEEPING, History
from monitoring.incidents import Incident
from monitoring.records import FailureRecord
from monitoring.retraining import RetrainingPolicy

LEAST_FREE_SHARE, LEAST_FREE_BYTES = 0.10, 2 * 2**30
"""Free space below both is a warning; below a tenth of both it is a fault."""

MOST_CLOCK_OFFSET = timedelta(seconds=30)
"""Signed webhooks are refused, and mutes and budgets end, by the wall clock: minutes matter there."""


class Severity(Enum):
    """How bad a finding is; the values are the words of `floodmark doctor`."""

    SOUND = "sound"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found, and the next command or place to look where it is not sound."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A deployment as the orchestrator has it: whether it is paused, and its schedules."""

    paused: bool
    active_schedules: tuple[str, ...]
    inactive_schedules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A work pool: whether it is paused, and how long ago its newest worker was heard of; None for never."""

    paused: bool
    newest_heartbeat: timedelta | None


def sound(check: str, message: str) -> Finding:
    """Return a finding without fault."""
    return Finding(check=check, severity=Severity.SOUND, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that does not stop the loop yet."""
    return Finding(check=check, severity=Severity.WARNING, message=message, remedy=remedy)


def fault(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that stops the loop."""
    return Finding(check=check, severity=Severity.FAULT, message=message, remedy=remedy)


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the gravest severity; nothing found means that nothing was looked at, which is a fault."""
    order = list(Severity)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.FAULT)


def last_step(history: History) -> Finding:
    """Tell whether the newest thing that happened is a failure."""
    happened = [entry for entry in history.entries if not isinstance(entry.record, BOOKKEEPING)]
    newest = happened[-1] if happened else None
    if newest is None:
        return warning(
            "last step", "nothing has happened yet", "run `floodmark run SOURCE` or start the deployment"
        )
    if isinstance(record := newest.record, FailureRecord):
        again = sum(entry.record == record for entry in happened)
        return fault(
            "last step",
            f"{record.step} failed at {_minutes(newest.at)}, {again} times so: {record.error}",
            "mend what the error names; the next run takes the step again",
        )
    return sound("last step", f"the last step ended well at {_minutes(newest.at)}")


def waiting(history: History, due: Sequence[str], now: datetime, allowed: timedelta) -> Finding:
    """Tell whether windows wait for longer than `allowed` without any having been taken."""
    taken = [entry.at for entry in history.entries if entry.record in history.windows]
    if not due:
        since = f"; the newest was taken at {_minutes(taken[-1])}" if taken else ""
        return sound("windows", f"no window waits{since}")
    told = f"{len(due)} windows wait, the first is {due[0]}"
    if taken and now - taken[-1] <= allowed:
        return sound("windows", f"{told}; the newest was taken at {_minutes(taken[-1])}")
    last = f"none was taken since {_minutes(taken[-1])}" if taken else "none was ever taken"
    return fault("windows", f"{told}, and {last}", "see the newest runs of floodmark-monitor in Prefect")


def model_age(history: History, policy: RetrainingPolicy) -> Finding:
    """Tell whether the champion is older than its policy lets it grow."""
    if history.champion is None:
        return warning("model", "there is no champion yet", "`floodmark status` tells what it waits for")
    age = history.windows_since(history.champion_since)
    told = f"champion {history.champion} is {age} windows old"
    if policy.max_age_windows is None or age is None or age <= policy.max_age_windows:
        return sound("model", told)
    return fault(
        "model",
        f"{told}; [retraining] max_age_windows is {policy.max_age_windows}",
        "`floodmark status` tells what holds it back; `floodmark retrain --reason TEXT` asks for a training",
    )


def incidents(open_ones: Sequence[Incident]) -> Finding:
    """Count the open incidents."""
    if not open_ones:
        return sound("incidents", "none is open")
    return warning("incidents", f"open: {', '.join(found.id for found in open_ones)}", "`floodmark status`")


def agreement(history: History, champion_alias: str | None, versions: Sequence[str], place: str) -> Finding:
    """Hold the ledger at `place` against the registry: one of them may not be the one that was meant."""
    check = "ledger and registry"
    if not history.entries and versions:
        return fault(
            check,
            f"the registry has {len(versions)} versions, and the ledger in {place} is empty:"
            " it is probably another store or home than the one they were made with",
            "set [store] or home as it was, or choose another model name",
        )
    if history.champion is not None and history.champion not in versions:
        return fault(
            check,
            f"the ledger's champion {history.champion} is not in the registry",
            "set tracking_uri as it was, or `floodmark rollback --reason TEXT`",
        )
    if history.champion != champion_alias and history.unsettled_promotion() is None:
        return warning(
            check,
            f"the alias champion is at {champion_alias or 'no version'}, the ledger's at {history.champion}",
            "`floodmark reconcile`",
        )
    return sound(check, f"both name {history.champion or 'no version'} as the champion")


def space(place: str, free: int, total: int) -> Finding:
    """Judge the free bytes of the file system that holds `place`."""
    told = f"{free / 2**30:.1f} GiB of {total / 2**30:.1f} are free at {place}"
    least = min(LEAST_FREE_BYTES, LEAST_FREE_SHARE * total)
    if free >= least:
        return sound("disk", told)
    remedy = "make room, or move home or [training] scratch to another disk"
    return (warning if free >= least / 10 else fault)("disk", told, remedy)


def clock(place: str, offset: timedelta) -> Finding:
    """Judge how far the clock of `place` is ahead of this machine's."""
    told = f"this machine's clock and that of {place} are {abs(offset.total_seconds()):.0f} s apart"
    if abs(offset) <= MOST_CLOCK_OFFSET:
        return sound("clock", told)
    return warning("clock", told, "set both by NTP; signatures, mutes and schedules follow the wall clock")


def schedules(
    expected: Mapping[str, Sequence[str]], found: Mapping[str, Deployment | None]
) -> Iterator[Finding]:
    """Judge deployments by name: those expected, with the schedules that they should have."""
    for name, wanted in expected.items():
        has = found.get(name)
        if has is None:
            yield fault("deployment", f"{name} is missing", "`floodmark deploy`")
        elif has.paused or (wanted and not has.active_schedules):
            what = "is paused" if has.paused or has.inactive_schedules else "has no schedule"
            yield fault("deployment", f"{name} {what}", f"`prefect deployment schedule resume {name} --all`")
        elif missing := [schedule for schedule in wanted if schedule not in has.active_schedules]:
            yield warning(
                "deployment",
                f"{name} runs at {', '.join(has.active_schedules)}, not at {', '.join(missing)}",
                "`floodmark deploy`",
            )
        else:
            yield sound("deployment", f"{name} runs at {', '.join(has.active_schedules) or 'events'}")


def workers(pools: Mapping[str, Pool | None], allowed: timedelta) -> Iterator[Finding]:
    """Judge work pools by name: each must be there, not be paused, and have a worker heard of lately."""
    for name, pool in pools.items():
        start = f"`prefect worker start --pool {name}` on a machine of that pool, or `floodmark up`"
        if pool is None:
            yield fault("work pool", f"{name} is missing", "`floodmark deploy`")
        elif pool.paused:
            yield fault("work pool", f"{name} is paused", f"`prefect work-pool resume {name}`")
        elif pool.newest_heartbeat is None:
            yield fault("work pool", f"{name} has no worker", start)
        elif pool.newest_heartbeat > allowed:
            silent = pool.newest_heartbeat.total_seconds()
            yield fault("work pool", f"{name}: no worker was heard of for {silent:.0f} s", start)
        else:
            yield sound("work pool", f"{name} has a worker")


def _minutes(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
