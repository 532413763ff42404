"""Promotion and rollback by hand."""

import pytest

from histories import bootstrap, history, judged, settled, trained
from monitoring.history import History
from monitoring.steering import promotion_by_person, rollback_by_person
from training.errors import ConfigurationError
from training.types import PromotionOutcome


def ledger(*outcomes: PromotionOutcome) -> History:
    """Version 1 is champion; version 2 and later ones were judged with these outcomes."""
    past = history(bootstrap("a"), trained("1", "a"), judged("1"), settled("1"))
    records = [entry.record for entry in past.entries]
    for number, outcome in enumerate(outcomes, start=2):
        records += [trained(str(number), "a"), judged(str(number), outcome, "1"), settled(str(number))]
    return history(*records)


def test_an_undecided_candidate_is_promoted_with_a_reason() -> None:
    record = promotion_by_person(ledger(PromotionOutcome.UNDECIDED), "2", reason="seen it", force=False)
    assert (record.version, record.from_version, record.by) == ("2", "1", "person")
    assert record.reason == "seen it"
    assert record.gates == ()


def test_a_refused_candidate_needs_force_and_the_ledger_says_so() -> None:
    past = ledger(PromotionOutcome.REFUSED)
    with pytest.raises(ConfigurationError, match="has not passed its gates"):
        promotion_by_person(past, "2", reason="seen it", force=False)
    assert promotion_by_person(past, "2", reason="seen it", force=True).reason == "forced: seen it"


def test_an_unjudged_candidate_needs_force() -> None:
    past = history(bootstrap("a"), trained("1", "a"))
    with pytest.raises(ConfigurationError, match="never judged"):
        promotion_by_person(past, "1", reason="hurry", force=False)


@pytest.mark.parametrize(("version", "said"), [("9", "its versions are 1, 2"), ("1", "the champion already")])
def test_only_another_known_version_can_be_promoted(version: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        promotion_by_person(ledger(PromotionOutcome.REFUSED), version, reason="", force=True)


def test_a_rollback_returns_to_the_previous_champion_and_can_be_rolled_back() -> None:
    past = ledger(PromotionOutcome.PROMOTED)
    record = rollback_by_person(past, reason="too many alerts")
    assert (record.version, record.from_version, record.outcome.value) == ("1", "2", "rolled_back")
    back = history(*[entry.record for entry in past.entries], record)
    assert (back.champion, back.previous) == ("1", "2")


def test_there_must_be_a_previous_champion() -> None:
    with pytest.raises(ConfigurationError, match="no previous champion"):
        rollback_by_person(ledger(), reason="")
