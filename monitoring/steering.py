"""What a person decides by hand, held against the ledger: pure, and on record with its reason."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from monitoring.history import SET_ASIDE, History
from monitoring.policy import newest
from monitoring.records import MuteRecord, PromotionRecord, RetrainRecord
from monitoring.retraining import RetrainingPolicy, WindowOutlook
from training.errors import ConfigurationError
from training.types import PromotionOutcome

_DURATION = re.compile(
    r"(?:(?P<weeks>\d{1,4})w)?(?:(?P<days>\d{1,4})d)?(?:(?P<hours>\d{1,4})h)?(?:(?P<minutes>\d{1,4})m)?"
)


def duration_of(text: str) -> timedelta:
    """Read a duration such as 3d, 12h or 1d12h.

    Raises:
        ConfigurationError: It is none, or has no unit, or lasts no time.
    """
    found = _DURATION.fullmatch(text)
    lasts = timedelta(**{unit: int(number) for unit, number in found.groupdict("0").items()} if found else {})
    if not lasts:
        raise ConfigurationError(
            f"{text!r} is no duration",
            hint="nothing was changed; allowed are weeks, days, hours and minutes, each a number of at most "
            "four digits, such as 90m, 12h, 3d, 2w or 1d12h",
        )
    return lasts


def promotion_by_person(history: History, version: str, *, reason: str, force: bool) -> PromotionRecord:
    """Return the record that makes `version` the champion.

    Raises:
        ConfigurationError: It is no version of this ledger, is the champion already, or was refused by
            its gates, never judged or rolled back, and `force` is not given.
    """
    known = [training.version for training in history.trainings if training.version is not None]
    if version not in known:
        raise ConfigurationError(
            f"version {version} is not in the ledger",
            hint=f"its versions are {', '.join(known) or 'none yet'}",
        )
    if version == history.champion:
        raise ConfigurationError(f"version {version} is the champion already", hint="see `floodmark history`")
    against = objection(history, version)
    if against is not None and not force:
        raise ConfigurationError(
            f"version {version} {against}",
            hint="promote it in spite of that with --force; the ledger will say so",
        )
    return PromotionRecord(
        version=version,
        from_version=history.champion,
        by="person",
        outcome=PromotionOutcome.PROMOTED,
        reason=f"forced: {reason}" if against else reason,
    )


def objection(history: History, version: str) -> str | None:
    """Say what speaks against a version's promotion by a person; None where its gates let it wait for one."""
    if history.registration_of(version) is None:
        return "is not in the ledger"
    if version in history.banned:
        return "was rolled back by the watch"
    verdicts = [record for record in history.verdicts if record.version == version]
    if not any(record.by == "gates" for record in verdicts):
        return "has not passed its gates: it was never judged"
    if verdicts[-1].outcome is PromotionOutcome.REFUSED:
        refused = "was refused by a person" if verdicts[-1].by == "person" else "has not passed its gates"
        return f"{refused}: {verdicts[-1].reason}"
    return None


def rollback_by_person(
    history: History, *, reason: str, exists: Callable[[str], bool] = lambda _: True
) -> PromotionRecord:
    """Return the record that makes the newest former champion the champion again.

    `exists` says whether a version is still registered.

    Raises:
        ConfigurationError: There is none left, but for those that the watch rolled back.
    """
    former = next((version for version in history.former_champions if exists(version)), None)
    if former is None:
        raise ConfigurationError(
            "there is no previous champion to return to",
            hint="what the watch rolled back returns with `floodmark promote VERSION --force` only",
        )
    return PromotionRecord(
        version=former,
        from_version=history.champion,
        by="person",
        outcome=PromotionOutcome.ROLLED_BACK,
        reason=reason,
    )


def refusal_by_person(history: History, version: str, *, reason: str) -> PromotionRecord:
    """Return the record that sends the waiting challenger away, so that the next training may be decided.

    Raises:
        ConfigurationError: `version` does not wait for a person.
    """
    if version != history.challenger or history.unjudged_training() is not None:
        waiting = (
            f"only version {history.challenger} is under way" if history.challenger else "no version waits"
        )
        raise ConfigurationError(
            f"version {version} does not wait for a person: {waiting}",
            hint="nothing was refused; see `floodmark status`",
        )
    return PromotionRecord(
        version=version,
        from_version=history.champion,
        by="person",
        outcome=PromotionOutcome.REFUSED,
        reason=reason,
    )


def retraining_by_person(history: History, policy: RetrainingPolicy, *, reason: str) -> RetrainRecord:
    """Return the record that asks for a training on the newest windows, whatever holds the policy back.

    Cooldown, budget, and a mute that is in force do not count: a person knows of them. A mute that follows
    takes it back.

    Raises:
        ConfigurationError: A training or candidate is under way, or the windows hold too few rows.
    """
    training, order = history.unjudged_training(), history.pending_order()
    under_way = (
        (training and f"version {training.version} waits for its gates")
        or (history.challenger and f"version {history.challenger} is undecided")
        or (order and not history.muted_after(order) and "a training is decided and has not ended")
    )
    if under_way:
        raise ConfigurationError(
            f"no other training can be asked for: {under_way}",
            hint="nothing was changed; see `floodmark status`",
        )
    sound = (record for record in history.latest_windows.values() if record.outcome not in SET_ASIDE)
    outlooks = [WindowOutlook(id=record.window.id, rows=record.rows, status=None) for record in sound]
    least = policy.of if history.champion else policy.bootstrap_windows
    chosen = newest(outlooks, at_least=least, min_rows=policy.min_rows)
    if (rows := sum(outlook.rows for outlook in chosen)) < policy.min_rows:
        raise ConfigurationError(
            f"all {len(chosen)} windows together hold {rows} rows; [retraining] min_rows is"
            f" {policy.min_rows}",
            hint="nothing was changed; wait for more windows, or lower it",
        )
    return RetrainRecord(windows=tuple(outlook.id for outlook in chosen), reason=reason)


def mute_by_person(now: datetime, *, lasts: str | None, until: datetime | None, reason: str) -> MuteRecord:
    """Return the record that forbids retraining for a duration such as `3d`, or until a time (UTC).

    Raises:
        ConfigurationError: Neither or both are given, or the mute would not end, or be over already.
    """
    if (lasts is None) == (until is None):
        raise ConfigurationError(
            "a mute needs one end", hint="give either --for 3d or --until 2026-01-31T12:00:00, in UTC"
        )
    if lasts is not None:
        until = now + duration_of(lasts)
    end = until.replace(tzinfo=UTC) if until and until.tzinfo is None else until
    if end is None or not end > now:
        raise ConfigurationError(
            f"the mute would end at {end}, which is not after {now.isoformat(timespec='seconds')}",
            hint="nothing was muted; give a later end, in UTC",
        )
    return MuteRecord(until=end, reason=reason)


def unmute_by_person(history: History, now: datetime, *, reason: str) -> MuteRecord:
    """Return the record that ends the mute in force.

    Raises:
        ConfigurationError: There is none.
    """
    if history.mute(now) is None:
        raise ConfigurationError("retraining is not muted", hint="see `floodmark status`")
    return MuteRecord(until=None, reason=reason)
