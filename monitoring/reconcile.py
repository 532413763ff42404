"""A person may move the alias `champion` in MLflow: the ledger follows, it never fights back."""

from monitoring.history import History
from monitoring.records import PromotionRecord
from training.errors import RetryableError
from training.types import PromotionOutcome


def moved_by_person(history: History, champion_alias: str | None) -> PromotionRecord | None:
    """Return the record of a move that somebody made outside, or None when ledger and alias agree.

    Raises:
        RetryableError: The alias is gone although a champion was promoted: that is never read as
            "no champion yet", because a first model would then be trained in its place.
    """
    if history.unsettled_promotion() is not None or champion_alias == history.champion:
        return None
    if champion_alias is None:
        raise RetryableError(
            f"the alias champion was removed in MLflow, while the ledger says version {history.champion}",
            hint="set the alias again in the MLflow UI, on that version or another one; nothing else changed",
        )
    return PromotionRecord(
        version=champion_alias,
        from_version=history.champion,
        by="person",
        outcome=PromotionOutcome.PROMOTED,
        reason="the alias champion was moved in MLflow",
    )
