"""What a decision is gathered from, and a ledger's decisions made again from the ledger alone."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from histories import START, bootstrap, history, judged, quarantined, scored, settled, trained, window
from monitoring.decision import event_time, retraining_inputs, with_decision
from monitoring.history import History
from monitoring.next_step import Judge, Settle, TakeWindow, Train, in_flight, next_step
from monitoring.policy import decide_retraining
from monitoring.records import (
    ClaimRecord,
    Entry,
    MuteRecord,
    PromotionRecord,
    Record,
    TrainingRecord,
    WindowRecord,
)
from monitoring.retraining import RetrainingInputs, RetrainingPolicy
from monitoring.verdicts import DriftStatus
from training.types import PromotionOutcome, Window, WindowVersion

DRIFTED = DriftStatus.DRIFTED
NOW = START + timedelta(days=10)
FIRST_MODEL: tuple[Record, ...] = (
    bootstrap("a"),
    bootstrap("b", retrain_on=("a", "b")),
    trained("1", "a", "b"),
    judged("1"),
    settled("1"),
)
ASKED_FOR = (scored("c", DRIFTED), scored("d", DRIFTED, retrain_on=("c", "d")))
LISTED = [window(name) for name in "abcd"]


def gathered(*past: Record, newest: WindowRecord | None = None) -> RetrainingInputs:
    newest = newest or scored("e", DRIFTED)
    return retraining_inputs(newest, history(*past), RetrainingPolicy(), listed=LISTED, now=NOW)


def test_the_windows_since_the_last_training_count_and_no_others() -> None:
    refused = judged("2", PromotionOutcome.REFUSED, "1")
    past = (*FIRST_MODEL, *ASKED_FOR, trained("2", "c", "d"), refused, settled("2"), quarantined("q"))
    facts = gathered(*past, scored("x"))
    assert [outlook.id for outlook in facts.windows] == ["x", "e"]
    assert (facts.since_training, facts.model_age, facts.champion) == (2, 4, "1")


def test_a_long_history_is_not_stored_with_every_window() -> None:
    facts = gathered(*FIRST_MODEL, *[scored(f"w{number}") for number in range(50)])
    assert [outlook.id for outlook in facts.windows] == ["w48", "w49", "e"]
    assert facts.model_age == 51


def test_before_a_champion_every_valid_window_counts() -> None:
    facts = gathered(bootstrap("a"), quarantined("q"), bootstrap("b"), newest=bootstrap("c"))
    assert [(outlook.id, outlook.status) for outlook in facts.windows] == [
        ("a", None),
        ("b", None),
        ("c", None),
    ]
    assert (facts.since_training, facts.model_age) == (None, None)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ((), "the training on c, d is pending"),
        ((trained("2", "c", "d"),), "version 2 waits for its gates"),
        ((trained("2", "c", "d"), judged("2", PromotionOutcome.UNDECIDED)), "version 2 waits for a person"),
        ((trained("2", "c", "d"), judged("2", PromotionOutcome.REFUSED)), None),
        ((trained("2", "c", "d"), judged("2")), None),
        ((trained(None, "c", "d"),), None),
    ],
)
def test_a_training_is_in_flight_from_its_decision_to_the_last_word(
    later: tuple[Record, ...], said: str | None
) -> None:
    assert in_flight(history(*FIRST_MODEL, *ASKED_FOR, *later), LISTED) == said


def test_a_training_whose_windows_are_gone_is_not_waited_for() -> None:
    past = history(*FIRST_MODEL, *ASKED_FOR)
    assert in_flight(past, [window("a")]) is None
    newest = with_decision(scored("e", DRIFTED), past, RetrainingPolicy(), listed=[window("a")], now=NOW)
    assert newest.decision is not None
    assert newest.decision.retrain


class TestDays:
    def test_a_training_counts_on_the_day_of_the_window_that_decided_it(self) -> None:
        decided = replace(ASKED_FOR[1], event_time=datetime(2020, 5, 1, 23, tzinfo=UTC))
        past = history(*FIRST_MODEL, ASKED_FOR[0], decided, scored("later"), trained("2", "c", "d"))
        assert past.training_days() == [START.date(), date(2020, 5, 1)]
        newest = replace(scored("e", DRIFTED), event_time=datetime(2020, 5, 1, tzinfo=UTC))
        assert gathered(*[entry.record for entry in past.entries], newest=newest).trainings_today == 1

    def test_without_event_times_the_ledger_says_the_day(self) -> None:
        assert gathered(*FIRST_MODEL).day == NOW.date()
        assert gathered(*FIRST_MODEL).trainings_today == 0

    @pytest.mark.parametrize("kind", ["datetime64[ns, UTC]", "str", "category"])
    def test_a_few_broken_clocks_do_not_move_a_window(self, kind: str) -> None:
        times = [
            *[f"2026-01-0{day}T00:00:00Z" for day in (2, 3, 4)],
            "2099-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
        ]
        frame = pd.DataFrame({"at": times}).astype({"at": kind})
        assert event_time(frame, "at", NOW) == datetime(2026, 1, 3, tzinfo=UTC)
        assert event_time(frame, "at", datetime(2026, 1, 2, tzinfo=UTC)) == datetime(2026, 1, 2, tzinfo=UTC)
        assert event_time(frame, None, NOW) is None


class TestMute:
    def test_the_newest_mute_holds_until_it_ends(self) -> None:
        past = history(
            *FIRST_MODEL,
            MuteRecord(until=NOW - timedelta(days=2), reason="over"),
            MuteRecord(until=NOW + timedelta(days=2), reason="repairs"),
        )
        mute = past.mute(NOW)
        assert mute is not None
        assert mute.reason == "repairs"
        assert past.mute(NOW + timedelta(days=2)) is None

    def test_an_unmute_ends_it(self) -> None:
        muted = MuteRecord(until=NOW + timedelta(days=2), reason="repairs")
        assert history(muted, MuteRecord(until=None, reason="done")).mute(NOW) is None

    def test_the_decision_held_by_a_mute_is_taken_on_the_next_window_after_it(self) -> None:
        past: list[Record] = [*FIRST_MODEL, MuteRecord(until=NOW, reason="repairs"), scored("c", DRIFTED)]
        during, after = NOW - timedelta(seconds=1), NOW
        held = with_decision(
            scored("d", DRIFTED), history(*past), RetrainingPolicy(), listed=LISTED, now=during
        )
        assert held.decision is not None
        assert (held.decision.retrain, held.decision.held, held.decision.windows) == (
            False,
            ("mute",),
            ("c", "d"),
        )
        taken = with_decision(
            scored("e", DRIFTED), history(*past, held), RetrainingPolicy(), listed=LISTED, now=after
        )
        assert taken.decision is not None
        assert taken.decision.windows == ("c", "d", "e")
        assert taken.decision.retrain

    def test_a_mute_takes_back_a_decision_whose_training_has_not_begun(self) -> None:
        muted = MuteRecord(until=NOW, reason="repairs")
        listed = [*LISTED, window("e")]
        past = history(*FIRST_MODEL, *ASKED_FOR)
        training = next_step(past, listed)
        assert isinstance(training, Train)
        assert next_step(history(*FIRST_MODEL, *ASKED_FOR, muted), listed) == TakeWindow(window=window("e"))
        begun = history(*FIRST_MODEL, *ASKED_FOR, ClaimRecord(step=str(training)), muted)
        at_work = [
            *begun.entries[:-1],
            Entry(sequence=len(begun.entries), at=NOW, record=muted, owner="a person's shell"),
        ]
        assert next_step(History(entries=tuple(at_work)), listed) == training


VERDICTS = [PromotionOutcome.PROMOTED, PromotionOutcome.REFUSED, PromotionOutcome.UNDECIDED]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Entry], RetrainingPolicy]:
    """A whole life of a model: windows of any verdict, a person's mutes, refused and undecided candidates."""
    policy = RetrainingPolicy(
        drifted=1,
        of=draw(st.integers(1, 3)),
        bootstrap_windows=draw(st.integers(1, 2)),
        cooldown_windows=draw(st.integers(0, 3)),
        max_age_windows=draw(st.none() | st.integers(1, 4)),
        daily_trainings=draw(st.integers(1, 2)),
    )
    past, listed = History(), [window(f"w{number}") for number in range(draw(st.integers(1, 16)))]
    versions = 0
    for _ in range(200):
        step = next_step(past, listed)
        if step is None:
            break
        now = START + timedelta(hours=len(past.entries))
        match step:
            case TakeWindow(window=taken):
                if draw(st.integers(0, 9)) == 0:
                    hours = draw(st.none() | st.integers(1, 30))
                    until = now + timedelta(hours=hours) if hours else None
                    past = appended(past, MuteRecord(until=until, reason="a person"), now)
                first = past.champion is None
                status = draw(st.sampled_from(DriftStatus))
                record = bootstrap(taken.id) if first else scored(taken.id, status)
                day = START + timedelta(days=len(past.windows) // 3)
                made = replace(record, event_time=day, window=version_of(taken))
                past = appended(past, with_decision(made, past, policy, listed=listed, now=now), now)
            case Train(windows=windows):
                versions += 1
                version = str(versions) if draw(st.integers(0, 3)) else None
                past = appended(past, trained(version, *[item.id for item in windows]), now)
            case Judge(training=training):
                outcome = draw(st.sampled_from(VERDICTS))
                past = appended(past, judged(str(training.version), outcome, past.champion), now)
            case Settle(promotion=promotion):
                past = appended(past, settled(promotion.version), now)
    return list(past.entries), policy


def version_of(taken: Window) -> WindowVersion:
    return WindowVersion(id=taken.id, fingerprint=taken.fingerprint)


def appended(past: History, record: Record, now: datetime) -> History:
    return History(entries=(*past.entries, Entry(sequence=past.next_sequence, at=now, record=record)))


@given(runs())
def test_every_stored_decision_of_a_ledger_is_made_again_from_the_ledger(
    run: tuple[list[Entry], RetrainingPolicy],
) -> None:
    codec = TypeAdapter(list[Entry])
    entries = codec.validate_json(codec.dump_json(run[0]))
    listed = [window(entry.record.window.id) for entry in entries if isinstance(entry.record, WindowRecord)]
    for place, entry in enumerate(entries):
        if not isinstance(record := entry.record, WindowRecord):
            continue
        stored = record.decision
        assert stored is not None
        assert stored.inputs is not None
        assert stored.policy == run[1]
        assert decide_retraining(stored.inputs, stored.policy) == stored
        past = History(entries=tuple(entries[:place]))
        again = with_decision(record, past, stored.policy, listed=listed, now=stored.inputs.now)
        assert again.decision == stored


@given(runs())
def test_no_life_of_a_model_breaks_the_policy(run: tuple[list[Entry], RetrainingPolicy]) -> None:
    entries, policy = run
    days: list[date] = []
    under_way = False
    windows_since: int | None = None
    muted_until: datetime | None = None
    for entry in entries:
        match record := entry.record:
            case MuteRecord():
                muted_until = record.until
            case WindowRecord():
                windows_since = None if windows_since is None else windows_since + 1
                assert record.decision is not None
                if record.decision.retrain:
                    assert not under_way, "two trainings in flight"
                    assert windows_since is None or windows_since > policy.cooldown_windows
                    assert muted_until is None or muted_until <= entry.at
                    assert record.event_time is not None
                    days.append(record.event_time.date())
                    assert days.count(days[-1]) <= policy.daily_trainings
                    under_way = True
            case TrainingRecord():
                under_way, windows_since = record.outcome == "registered", 0
            case PromotionRecord():
                under_way = record.outcome is PromotionOutcome.UNDECIDED
            case _:
                pass
