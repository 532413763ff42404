"""The loop's next step, from the ledger alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histories import bootstrap, history, judged, quarantined, scored, settled, trained, version_of, window
from monitoring.arrivals import due, rewritten
from monitoring.history import History
from monitoring.next_step import Judge, Settle, TakeWindow, Train, next_step
from monitoring.records import ClaimRecord, Entry, FailureRecord, Record, ReleaseRecord, TrainingRecord
from monitoring.verdicts import DriftStatus
from training.types import PromotionOutcome, Window

FIRST_MODEL: tuple[Record, ...] = (
    bootstrap("a"),
    bootstrap("b", retrain_on=("a", "b")),
    trained("1", "a", "b"),
    judged("1"),
    settled("1"),
)


def test_an_empty_ledger_takes_the_oldest_window() -> None:
    assert next_step(History(), [window("a"), window("b")]) == TakeWindow(window=window("a"))


def test_nothing_is_left_when_every_window_was_taken() -> None:
    assert next_step(history(bootstrap("a")), [window("a")]) is None


def test_a_decision_is_carried_out_before_the_next_window() -> None:
    step = next_step(history(*FIRST_MODEL[:2]), [window("a"), window("b"), window("c")])
    assert step == Train(reason="first model", windows=(version_of("a"), version_of("b")))


def test_a_training_leaves_out_windows_that_are_no_longer_as_they_were_taken() -> None:
    past = history(*FIRST_MODEL[:2])
    step = next_step(past, [window("a", version="2"), window("b"), window("c")])
    assert step == Train(reason="first model, 1 of them since rewritten or gone", windows=(version_of("b"),))
    assert next_step(past, [window("c")]) == TakeWindow(window=window("c"))


def test_a_registered_candidate_is_judged_and_the_aliases_follow() -> None:
    step = next_step(history(*FIRST_MODEL[:3]), [window("c")])
    assert isinstance(step, Judge)
    assert step.training.version == "1"
    step = next_step(history(*FIRST_MODEL[:4]), [window("c")])
    assert step == Settle(promotion=judged("1"))
    assert next_step(history(*FIRST_MODEL), [window("c")]) == TakeWindow(window=window("c"))


def test_a_failed_training_waits_for_a_new_decision() -> None:
    past = history(*FIRST_MODEL[:2], trained(None, "a", "b"))
    assert next_step(past, [window("a"), window("b")]) is None


def test_a_refused_first_model_leaves_no_champion_and_asks_for_more_windows() -> None:
    refused = judged("1", PromotionOutcome.REFUSED)
    past = history(*FIRST_MODEL[:3], refused, settled("1"))
    assert past.champion is None
    assert past.challenger is None
    assert next_step(past, [window("c")]) == TakeWindow(window=window("c"))


def test_an_undecided_candidate_waits_as_challenger() -> None:
    past = history(*FIRST_MODEL, trained("2"), judged("2", PromotionOutcome.UNDECIDED, "1"), settled("2"))
    assert (past.champion, past.challenger) == ("1", "2")


def test_only_windows_since_the_last_training_count_for_the_policy() -> None:
    drifted = [scored(name, DriftStatus.DRIFTED) for name in ("c", "d")]
    past = history(*FIRST_MODEL, *drifted, trained("2", "c", "d"), scored("e"))
    assert [outlook.id for outlook in past.outlooks_since_training()] == ["e"]


def test_a_quarantined_window_is_taken_again_only_when_it_was_repaired() -> None:
    past = history(quarantined("a"), bootstrap("b"))
    assert due(past, [window("a"), window("b")], "") == []
    assert due(past, [window("a", version="2"), window("b")], "") == [window("a", version="2")]


def test_a_rewritten_window_is_named_but_not_taken_twice() -> None:
    past = history(bootstrap("a"))
    assert due(past, [window("a", version="2")], "") == []
    assert rewritten(past, [window("a", version="2")]) == ["a"]


def test_previous_is_the_version_before_the_champion() -> None:
    past = history(*FIRST_MODEL, trained("2"), judged("2", from_version="1"), settled("2"))
    assert (past.champion, past.previous) == ("2", "1")


@pytest.mark.parametrize("length", range(len(FIRST_MODEL) + 1))
def test_claims_and_failures_change_nothing(length: int) -> None:
    past = FIRST_MODEL[:length]
    disturbed: list[Record] = []
    for record in past:
        disturbed += [
            ClaimRecord(step="x"),
            FailureRecord(step="x", error="killed"),
            ReleaseRecord(step="x", reason="KeyboardInterrupt"),
            record,
        ]
    listed = [window("a"), window("b"), window("c")]
    assert next_step(history(*disturbed), listed) == next_step(history(*past), listed)


def test_a_quarantined_window_is_taken_again_when_it_is_to_be_read_otherwise() -> None:
    past = history(quarantined("a"), bootstrap("b"))
    assert due(past, [window("a"), window("b")], "another time column") == [window("a")]


@pytest.mark.parametrize("length", [2, 3])
def test_a_failed_training_or_judging_lets_the_next_window_pass_first(length: int) -> None:
    listed = [window("a"), window("b"), window("c")]
    owed = next_step(history(*FIRST_MODEL[:length]), listed)
    failure = FailureRecord(step=str(owed), error="out of memory")
    failed = [*FIRST_MODEL[:length], failure]
    assert next_step(history(*failed), listed) == TakeWindow(window=window("c"))
    assert next_step(history(*failed, quarantined("c")), listed) == owed
    assert next_step(history(*failed), listed[:2]) == owed, "without a window it is tried again at once"


def test_a_move_of_the_champion_cancels_what_was_decided_under_the_old_one() -> None:
    drifted = [scored("c", DriftStatus.DRIFTED), scored("d", DriftStatus.DRIFTED, retrain_on=("c", "d"))]
    refused = judged("2", PromotionOutcome.REFUSED)
    past = history(*FIRST_MODEL, trained("2"), refused, settled("2"), *drifted)
    listed = [window(name) for name in "abcd"]
    assert isinstance(next_step(past, listed), Train)
    moved = history(*[entry.record for entry in past.entries], judged("2"), settled("2"))
    assert next_step(moved, listed) is None
    assert moved.outlooks_since_training() == []


def perform(step: object, count: int) -> list[Record]:
    """What the flows would write for a step, in the plainest case."""
    match step:
        case TakeWindow(window=Window(id=name)) if count < 2:
            retrain_on = ("w0", "w1") if count == 1 else ()
            return [bootstrap(name, retrain_on=retrain_on)]
        case TakeWindow(window=Window(id=name)):
            return [scored(name, DriftStatus.DRIFTED, retrain_on=(name,) if count % 3 == 0 else ())]
        case Train(windows=windows):
            return [trained(f"v{count}-{windows[-1].id}")]
        case Judge(training=TrainingRecord(version=str(version))):
            return [judged(version)]
        case Settle(promotion=promotion):
            return [settled(promotion.version)]
    raise AssertionError(step)


def run(listed: Sequence[Window], kills: set[int]) -> History:
    """Run the loop to its end; at the steps in `kills` it dies after its claim, before its record."""
    past, attempt = History(), 0
    while (step := next_step(past, listed)) is not None:
        attempt += 1
        assert attempt < 1_000, "the loop does not end"
        records: list[Record] = [ClaimRecord(step=str(step))]
        records += [] if attempt in kills else perform(step, len(past.windows))
        for record in records:
            entry = Entry(sequence=past.next_sequence, at=history(record).entries[0].at, record=record)
            past = History(entries=(*past.entries, entry))
    return past


@given(count=st.integers(0, 12), kills=st.sets(st.integers(1, 40)))
def test_killed_anywhere_and_run_again_the_loop_does_the_same(count: int, kills: set[int]) -> None:
    listed = [window(f"w{number}") for number in range(count)]
    undisturbed, disturbed = run(listed, set()), run(listed, kills)

    def essence(past: History) -> list[Record]:
        return [entry.record for entry in past.entries if not isinstance(entry.record, ClaimRecord)]

    assert essence(disturbed) == essence(undisturbed)
    assert [record.window.id for record in disturbed.windows] == [item.id for item in listed]
