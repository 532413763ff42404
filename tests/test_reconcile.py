"""What follows when a person moves, removes or deletes the champion in MLflow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histories import bootstrap, history, judged, settled, trained
from monitoring.history import History
from monitoring.promotion_policy import Unvetted
from monitoring.reconcile import Registered, moved_by_person
from monitoring.records import PromotionRecord, Record
from monitoring.steering import promotion_by_person, rollback_by_person
from training.errors import ConfigurationError, RetryableError
from training.types import PromotionOutcome

PROMOTED, ROLLED_BACK = PromotionOutcome.PROMOTED, PromotionOutcome.ROLLED_BACK
REFUSED, UNDECIDED, PUT_BACK = PromotionOutcome.REFUSED, PromotionOutcome.UNDECIDED, PromotionOutcome.PUT_BACK

ONE: tuple[Record, ...] = (
    bootstrap("a", retrain_on=("a",)),
    trained("1", "a"),
    judged("1"),
    settled("1"),
)
TWO: tuple[Record, ...] = (*ONE, trained("2", "b"), judged("2", from_version="1"), settled("2"))


def move(
    past: History,
    alias: str | None,
    *,
    unvetted: Unvetted = "put_back",
    gone: tuple[str, ...] = (),
    foreign: tuple[str, ...] = (),
) -> PromotionRecord | None:
    registered = Registered(
        exists=lambda version: version not in gone,
        foreign=lambda version: "it holds no intact artifact" if version in foreign else None,
    )
    return moved_by_person(past, alias, registered, unvetted)


def told(record: PromotionRecord | None) -> tuple[str, str | None, PromotionOutcome]:
    assert record is not None
    assert record.by == "person"
    return record.version, record.from_version, record.outcome


def test_agreement_is_no_move() -> None:
    assert move(history(*ONE), "1") is None
    assert move(history(), None) is None


def test_an_alias_that_has_not_followed_yet_is_no_move() -> None:
    assert move(history(*ONE[:3]), None) is None


@pytest.mark.parametrize("unvetted", ["put_back", "serve"])
def test_a_former_champion_or_a_waiting_challenger_is_promoted_by_a_person(unvetted: Unvetted) -> None:
    assert told(move(history(*TWO), "1", unvetted=unvetted)) == ("1", "2", PROMOTED)
    waiting = history(*TWO, trained("3", "c"), judged("3", UNDECIDED, "2"), settled("3"))
    assert told(move(waiting, "3", unvetted=unvetted)) == ("3", "2", PROMOTED)


BY_WATCH = PromotionRecord(version="2", from_version="3", by="watch", outcome=ROLLED_BACK, reason="off")
UNVETTED = {
    "refused by its gates": (trained("3", "c"), judged("3", REFUSED, "2"), settled("3")),
    "still before its gates": (trained("3", "c"),),
    "rolled back by the watch": (
        trained("3", "c"),
        judged("3", from_version="2"),
        settled("3"),
        BY_WATCH,
        settled("2"),
    ),
    "not in the ledger": (),
}


@pytest.mark.parametrize("case", UNVETTED)
def test_what_is_not_vetted_is_put_back_or_served_as_configured(case: str) -> None:
    past = history(*TWO, *UNVETTED[case])
    assert told(move(past, "3")) == ("3", "2", PUT_BACK)
    served = move(past, "3", unvetted="serve")
    assert told(served) == ("3", "2", PROMOTED)
    assert served is not None
    assert "although version 3" in served.reason


@pytest.mark.parametrize("unvetted", ["put_back", "serve"])
def test_what_cannot_be_loaded_is_never_served(unvetted: Unvetted) -> None:
    record = move(history(*TWO), "1", unvetted=unvetted, foreign=("1",))
    assert told(record) == ("1", "2", PUT_BACK)
    assert record is not None
    assert "no intact artifact" in record.reason
    assert told(move(history(), "9", unvetted=unvetted, foreign=("9",))) == ("9", None, PUT_BACK)


def test_a_removed_alias_takes_the_champion_away() -> None:
    record = move(history(*TWO), None)
    assert told(record) == ("1", "2", ROLLED_BACK)
    assert record is not None
    after = history(*TWO, record, settled("1"))
    assert after.banned == set(), "a person may change their mind"
    assert told(move(after, "2")) == ("2", "1", PROMOTED)


def test_a_removed_alias_never_reads_as_no_champion_yet() -> None:
    assert told(move(history(*ONE), None)) == ("1", "1", PUT_BACK)
    assert told(move(history(*TWO), None, gone=("1",))) == ("2", "2", PUT_BACK)


def test_a_deleted_champion_is_followed_by_the_former_one() -> None:
    record = move(history(*TWO), None, gone=("2",))
    assert told(record) == ("1", "2", ROLLED_BACK)
    assert record is not None
    assert "version 2 was deleted" in record.reason
    with pytest.raises(RetryableError, match="no former champion is left"):
        move(history(*TWO), None, gone=("1", "2"))


def test_a_foreign_version_in_the_place_of_a_deleted_champion_gives_way_to_the_former_one() -> None:
    assert told(move(history(*TWO), "9", gone=("2",), foreign=("9",))) == ("1", "2", ROLLED_BACK)
    last = move(history(*ONE, *UNVETTED["refused by its gates"]), "3", gone=("1",))
    assert told(last) == ("3", "1", PROMOTED), "nothing else is left"
    with pytest.raises(RetryableError, match="no former champion is left"):
        move(history(*ONE), "9", gone=("1",), foreign=("9",))


def test_a_move_that_was_undone_judges_no_candidate() -> None:
    candidate = trained("3", "c")
    before = history(*TWO, candidate)
    undone = move(before, "3")
    assert undone is not None
    after = history(*TWO, candidate, undone, settled("3"))
    assert after.unjudged_training() == candidate
    assert (after.champion, after.challenger, after.previous) == ("2", "3", "1")


def test_the_ledger_refuses_what_was_rolled_back_unless_forced() -> None:
    watched = replace(BY_WATCH, version="1", from_version="2")
    past = history(*TWO, watched, settled("1"))
    with pytest.raises(ConfigurationError, match="version 2 was rolled back"):
        promotion_by_person(past, "2", reason="again", force=False)
    with pytest.raises(ConfigurationError, match="no previous champion"):
        rollback_by_person(past, reason="and again")
    forced = promotion_by_person(past, "2", reason="mended", force=True)
    assert forced.reason == "forced: mended"
    assert history(*TWO, watched, settled("1"), forced).banned == set()


@given(st.data())
def test_whatever_the_alias_says_the_ledger_keeps_a_champion_that_is_registered(data: st.DataObject) -> None:
    """Following record after record ends, with alias and ledger on one version that exists and loads."""
    names = ["1", "2", "3", "4"]
    past = [*TWO, trained("3", "c"), judged("3", REFUSED, "2"), settled("3")]
    foreign = tuple(data.draw(st.sets(st.sampled_from(["3", "4"]))))
    gone = tuple(data.draw(st.sets(st.sampled_from(["2", "3", "4"]))))
    unvetted: Unvetted = data.draw(st.sampled_from(["put_back", "serve"]))
    alias = data.draw(st.sampled_from([None, *(name for name in names if name not in gone)]))
    for _ in range(4):
        record = move(history(*past), alias, unvetted=unvetted, gone=gone, foreign=foreign)
        if record is None:
            break
        past = [*past, record, settled(record.version)]
        serves = record.from_version if record.outcome is PUT_BACK else record.version
        if record.outcome is PUT_BACK or alias in (None, record.from_version, record.version):
            alias = serves  # as `flows.settle.follow` does
    else:
        pytest.fail("the ledger and the alias never agreed")
    champion = history(*past).champion
    assert champion == alias
    assert champion not in gone
    assert champion not in foreign
