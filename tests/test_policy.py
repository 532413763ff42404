"""The retraining policy: what asks for a training, what holds it back, and that both are told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.policy import HOLDS, decide_retraining
from monitoring.retraining import RetrainingDecision, RetrainingInputs, RetrainingPolicy, WindowOutlook
from monitoring.verdicts import DriftStatus

STABLE, DRIFTED, INCONCLUSIVE = DriftStatus.STABLE, DriftStatus.DRIFTED, DriftStatus.INCONCLUSIVE
NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)


def inputs(*statuses: DriftStatus | None, rows: int = 1_000) -> RetrainingInputs:
    windows = tuple(
        WindowOutlook(id=f"w{place}", rows=rows, status=status) for place, status in enumerate(statuses)
    )
    since = len(windows)
    return RetrainingInputs(windows=windows, champion="1", now=NOW, day=NOW.date(), since_training=since)


@pytest.mark.parametrize(
    ("statuses", "retrain", "reason"),
    [
        ((), False, "not scored"),
        ((DRIFTED,), False, "1 of the last 1 windows drifted; the policy asks for 2 of 3"),
        ((DRIFTED, DRIFTED), True, "2 of the last 2"),
        ((DRIFTED, STABLE, DRIFTED), True, "2 of the last 3"),
        ((DRIFTED, DRIFTED, STABLE), False, "the newest window is STABLE"),
        ((DRIFTED, DRIFTED, INCONCLUSIVE), False, "the newest window is INCONCLUSIVE"),
        ((DRIFTED, STABLE, STABLE, DRIFTED), False, "1 of the last 3"),
        ((DRIFTED, INCONCLUSIVE, DRIFTED), True, "2 of the last 3"),
    ],
)
def test_k_of_n_with_the_newest(statuses: tuple[DriftStatus, ...], retrain: bool, reason: str) -> None:
    decision = decide_retraining(inputs(*statuses), RetrainingPolicy())
    assert decision.retrain is retrain
    assert reason in decision.reason
    assert decision.trigger == ("drift" if retrain else None)


@pytest.mark.parametrize(
    ("policy", "facts", "held", "reason"),
    [
        ({"min_rows": 2_001}, {}, "rows", "2000 of 2001 rows to train on"),
        ({"cooldown_windows": 4}, {}, "cooldown", "cooldown of 4 windows after a training: 3 more to come"),
        ({}, {"in_flight": "version 7 waits for a person"}, "in_flight", "version 7 waits for a person"),
        ({}, {"trainings_today": 4}, "budget", "4 of 4 trainings on 2026-01-10"),
        (
            {},
            {"muted_until": NOW + timedelta(hours=1), "mute_reason": "pool is repaired"},
            "mute",
            "muted until 2026-01-10T13:00+00:00: pool is repaired",
        ),
    ],
)
@pytest.mark.parametrize("champion", ["1", None])
def test_each_hold_keeps_what_was_asked_for_and_says_why(
    policy: dict[str, int], facts: dict[str, Any], held: str, reason: str, champion: str | None
) -> None:
    bounds = RetrainingPolicy(bootstrap_windows=2, **policy)
    statuses = (DRIFTED, DRIFTED) if champion else (None, None)
    decision = decide_retraining(replace(inputs(*statuses), champion=champion, **facts), bounds)
    assert not decision.retrain
    assert decision.held == (held,)
    assert decision.trigger == ("drift" if champion else "first")
    assert decision.windows == ("w0", "w1")
    assert f"held back: {reason}" in decision.reason


def test_small_windows_gather_rows_from_drifted_windows_further_back() -> None:
    policy = RetrainingPolicy()
    assert decide_retraining(inputs(DRIFTED, DRIFTED, DRIFTED, rows=300), policy).held == ("rows",)
    decision = decide_retraining(inputs(DRIFTED, STABLE, DRIFTED, DRIFTED, DRIFTED, rows=300), policy)
    assert (decision.retrain, decision.windows) == (True, ("w0", "w2", "w3", "w4"))


def test_all_holds_are_reported_together() -> None:
    facts: dict[str, Any] = {
        "in_flight": "training",
        "trainings_today": 9,
        "muted_until": NOW + timedelta(days=1),
    }
    policy = RetrainingPolicy(min_rows=9_999, cooldown_windows=9)
    decision = decide_retraining(replace(inputs(DRIFTED, DRIFTED), **facts), policy)
    assert decision.held == tuple(HOLDS)
    assert decision.reason.count(";") == len(HOLDS) - 1


def test_nothing_is_held_that_nothing_asks_for() -> None:
    decision = decide_retraining(replace(inputs(STABLE), in_flight="training"), RetrainingPolicy())
    assert (decision.retrain, decision.held, decision.windows) == (False, (), ())


@pytest.mark.parametrize(
    ("statuses", "age", "trained_on"),
    [
        ((STABLE, STABLE, STABLE, STABLE), 10, ("w1", "w2", "w3")),
        ((STABLE, STABLE, STABLE), 9, ()),
        ((STABLE, STABLE), 10, ()),
        ((STABLE, INCONCLUSIVE, STABLE, STABLE), 30, ("w0", "w2", "w3")),
        ((STABLE, STABLE, STABLE, INCONCLUSIVE), 30, ()),
        ((STABLE, STABLE, DRIFTED), 30, ("w0", "w1", "w2")),
        ((STABLE, DRIFTED, DRIFTED), 30, ("w1", "w2")),
    ],
)
def test_an_old_model_is_trained_again(
    statuses: tuple[DriftStatus, ...], age: int, trained_on: tuple[str, ...]
) -> None:
    decision = decide_retraining(
        replace(inputs(*statuses), model_age=age), RetrainingPolicy(max_age_windows=10)
    )
    assert decision.retrain is bool(trained_on)
    assert decision.windows == trained_on
    assert f"{age} windows old" in decision.reason or decision.trigger == "drift"
    assert decision.retrain or not decision.windows


@pytest.mark.parametrize(
    ("windows", "rows", "retrain"), [(1, 900, False), (3, 10, False), (2, 9_000, False), (3, 400, True)]
)
def test_the_first_training_waits_for_windows_and_rows(windows: int, rows: int, retrain: bool) -> None:
    first = replace(inputs(*[None] * windows, rows=rows), champion=None, since_training=None)
    assert decide_retraining(first, RetrainingPolicy()).retrain is retrain


def test_a_mute_ends_at_its_time() -> None:
    muted = replace(inputs(DRIFTED, DRIFTED), muted_until=NOW + timedelta(seconds=1))
    assert not decide_retraining(muted, RetrainingPolicy()).retrain
    assert decide_retraining(replace(muted, now=NOW + timedelta(seconds=1)), RetrainingPolicy()).retrain


@pytest.mark.parametrize(
    "wrong",
    [
        {"drifted": 0},
        {"drifted": 4},
        {"min_rows": 0},
        {"bootstrap_windows": 0},
        {"cooldown_windows": -1},
        {"max_age_windows": 0},
        {"daily_trainings": 0},
    ],
)
def test_a_policy_validates_itself(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetrainingPolicy(**wrong)


@st.composite
def policies(draw: st.DrawFn) -> RetrainingPolicy:
    of = draw(st.integers(1, 5))
    return RetrainingPolicy(
        drifted=draw(st.integers(1, of)),
        of=of,
        min_rows=draw(st.integers(1, 3_000)),
        bootstrap_windows=draw(st.integers(1, 4)),
        cooldown_windows=draw(st.integers(0, 6)),
        max_age_windows=draw(st.none() | st.integers(1, 10)),
        daily_trainings=draw(st.integers(1, 3)),
    )


@st.composite
def situations(draw: st.DrawFn) -> RetrainingInputs:
    statuses = draw(st.lists(st.sampled_from(DriftStatus), max_size=10))
    return replace(
        inputs(*statuses, rows=draw(st.integers(1, 1_500))),
        since_training=draw(st.none() | st.integers(1, 12)),
        model_age=draw(st.integers(1, 20)),
        trainings_today=draw(st.integers(0, 4)),
        in_flight=draw(st.none() | st.just("version 2 waits for its gates")),
        muted_until=draw(st.none() | st.integers(-3, 3).map(lambda hours: NOW + timedelta(hours=hours))),
    )


@given(situations(), policies())
def test_a_yes_breaks_no_bound(facts: RetrainingInputs, policy: RetrainingPolicy) -> None:
    decision = decide_retraining(facts, policy)
    if not decision.retrain:
        return
    assert facts.in_flight is None
    assert facts.since_training is None or facts.since_training > policy.cooldown_windows
    assert facts.trainings_today < policy.daily_trainings
    assert facts.muted_until is None or facts.muted_until <= facts.now
    known = {window.id: window for window in facts.windows}
    assert sum(known[name].rows for name in decision.windows) >= policy.min_rows
    assert decision.windows[-1] == facts.windows[-1].id
    assert all(known[name].status is not INCONCLUSIVE for name in decision.windows)


@given(situations(), policies())
def test_a_no_always_has_a_reason(facts: RetrainingInputs, policy: RetrainingPolicy) -> None:
    decision = decide_retraining(facts, policy)
    assert decision.reason
    assert decision.retrain is (decision.trigger is not None and not decision.held)
    assert bool(decision.windows) is (decision.trigger is not None)


@given(situations(), policies(), st.sets(st.integers(0, 9)))
def test_more_drift_never_turns_a_yes_into_a_no(
    facts: RetrainingInputs, policy: RetrainingPolicy, places: set[int]
) -> None:
    windows = tuple(
        replace(window, status=DRIFTED) if place in places else window
        for place, window in enumerate(facts.windows)
    )
    worse = decide_retraining(replace(facts, windows=windows), policy)
    assert worse.retrain >= decide_retraining(facts, policy).retrain


@given(situations(), policies())
def test_lifting_a_hold_never_turns_a_yes_into_a_no(
    facts: RetrainingInputs, policy: RetrainingPolicy
) -> None:
    lifted = replace(facts, in_flight=None, muted_until=None, trainings_today=0, since_training=None)
    assert decide_retraining(lifted, policy).retrain >= decide_retraining(facts, policy).retrain


@given(situations(), policies())
def test_a_stored_decision_can_be_made_again(facts: RetrainingInputs, policy: RetrainingPolicy) -> None:
    decision: RetrainingDecision = decide_retraining(facts, policy)
    assert decision.inputs is not None
    assert decision.policy is not None
    assert decide_retraining(decision.inputs, decision.policy) == decision
