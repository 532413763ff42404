"""What a person decides by hand, held against the ledger: pure, and on record with its reason."""

from monitoring.history import History
from monitoring.records import PromotionRecord
from training.errors import ConfigurationError
from training.types import PromotionOutcome


def promotion_by_person(history: History, version: str, *, reason: str, force: bool) -> PromotionRecord:
    """Return the record that makes `version` the champion.

    Raises:
        ConfigurationError: It is no version of this ledger, is the champion already, or was refused by
            its gates or never judged, and `force` is not given.
    """
    known = [training.version for training in history.trainings if training.version is not None]
    if version not in known:
        raise ConfigurationError(
            f"version {version} is not in the ledger",
            hint=f"its versions are {', '.join(known) or 'none yet'}",
        )
    if version == history.champion:
        raise ConfigurationError(f"version {version} is the champion already", hint="see `floodmark history`")
    verdicts = [record for record in history.promotions if record.version == version and record.by == "gates"]
    failed = not verdicts or verdicts[-1].outcome is PromotionOutcome.REFUSED
    if failed and not force:
        told = verdicts[-1].reason if verdicts else "it was never judged"
        raise ConfigurationError(
            f"version {version} has not passed its gates: {told}",
            hint="promote it in spite of that with --force; the ledger will say so",
        )
    return PromotionRecord(
        version=version,
        from_version=history.champion,
        by="person",
        outcome=PromotionOutcome.PROMOTED,
        reason=f"forced: {reason}" if failed else reason,
    )


def rollback_by_person(history: History, *, reason: str) -> PromotionRecord:
    """Return the record that makes the previous champion the champion again.

    Raises:
        ConfigurationError: There is no previous champion.
    """
    if history.previous is None:
        raise ConfigurationError("there is no previous champion to return to", hint="see `floodmark history`")
    return PromotionRecord(
        version=history.previous,
        from_version=history.champion,
        by="person",
        outcome=PromotionOutcome.ROLLED_BACK,
        reason=reason,
    )
