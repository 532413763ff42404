"""A person may move or remove the alias `champion` in MLflow: what follows in the ledger, and why."""

from collections.abc import Callable
from dataclasses import dataclass

from monitoring.history import History
from monitoring.promotion_policy import Unvetted
from monitoring.records import PromotionRecord
from monitoring.steering import objection
from training.errors import RetryableError
from training.types import PromotionOutcome

WAY_OUT = (
    "nothing else changed; point the alias champion to a version that is left in the MLflow UI, or run "
    "`floodmark promote VERSION --force --reason TEXT`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What the registry knows, each asked only where it matters.

    Attributes:
        exists: Whether a version is registered.
        foreign: Why a version cannot serve as one of this model; None when it can.
    """

    exists: Callable[[str], bool]
    foreign: Callable[[str], str | None]


def moved_by_person(
    history: History, alias: str | None, registered: Registered, unvetted: Unvetted
) -> PromotionRecord | None:
    """Return the record of what somebody did to the alias, or None when ledger and alias agree.

    A version that waits for a person, or served before, is promoted. One that is not vetted is put back or
    served, as configured; what cannot be loaded as a version of this model is always put back. A removed
    alias takes the champion away, in favour of the newest former one; where there is none, it is put back.

    Raises:
        RetryableError: The champion's version was deleted, and nothing that can serve is left.
    """
    champion = history.champion
    if history.unsettled_promotion() is not None or alias == champion:
        return None
    if alias is None:
        return _removed(history, str(champion), registered.exists)
    if why := registered.foreign(alias):
        return _put_back(history, alias, f"cannot serve: {why}", registered.exists, loads=False)
    against = objection(history, alias)
    if against and unvetted == "put_back":
        return _put_back(history, alias, against, registered.exists, loads=True)
    told = "the alias champion was moved in MLflow"
    reason = f"{told}, although version {alias} {against}" if against else told
    return _by_person(history, alias, PromotionOutcome.PROMOTED, reason)


def _removed(history: History, champion: str, exists: Callable[[str], bool]) -> PromotionRecord:
    deleted = not exists(champion)
    happened = (
        f"version {champion} was deleted in MLflow" if deleted else "the alias champion was removed in MLflow"
    )
    former = _newest_left(history, exists)
    if former is not None:
        return _by_person(history, former, PromotionOutcome.ROLLED_BACK, happened)
    if deleted:
        raise RetryableError(f"{happened}, and no former champion is left to serve", hint=WAY_OUT)
    return _undone(history, champion, f"{happened}, and nothing else can serve")


def _put_back(
    history: History, alias: str, why: str, exists: Callable[[str], bool], *, loads: bool
) -> PromotionRecord:
    moved = f"the alias champion was moved in MLflow, but version {alias} {why}"
    if history.champion is None or exists(history.champion):
        return _undone(history, alias, moved)
    happened = f"{moved}; version {history.champion} was deleted"
    if former := _newest_left(history, exists):
        return _by_person(history, former, PromotionOutcome.ROLLED_BACK, happened)
    if not loads:
        raise RetryableError(f"{happened}, and no former champion is left to serve", hint=WAY_OUT)
    # The version that the alias points to, although nobody vetted it.
    happened = f"{happened}, and no former champion is left to serve"
    return _by_person(history, alias, PromotionOutcome.PROMOTED, happened)


def _undone(history: History, version: str, happened: str) -> PromotionRecord:
    champion = history.champion
    serves = f"version {champion} serves on" if champion else "there is no champion yet"
    return _by_person(history, version, PromotionOutcome.PUT_BACK, f"{happened}; {serves}")


def _by_person(history: History, version: str, outcome: PromotionOutcome, reason: str) -> PromotionRecord:
    return PromotionRecord(
        version=version, from_version=history.champion, by="person", outcome=outcome, reason=reason
    )


def _newest_left(history: History, exists: Callable[[str], bool]) -> str | None:
    return next((version for version in history.former_champions if exists(version)), None)
