"""Who promotes, what a new champion is watched for, and what a challenger does in shadow."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histories import bootstrap, history, judged, quarantined, scored, settled, trained
from monitoring.history import History
from monitoring.next_step import in_flight
from monitoring.promotion_policy import Mode, PromotionPolicy, under_policy
from monitoring.records import Comparison, PromotionRecord, Record, WindowRecord
from monitoring.watch import rollback_by_watch, shadowed, verdict_in_shadow, watched
from training.detectors import BASELINES
from training.types import GateResult, PromotionOutcome, Verdict

PROMOTED, REFUSED, UNDECIDED = PromotionOutcome.PROMOTED, PromotionOutcome.REFUSED, PromotionOutcome.UNDECIDED
GATES = (GateResult(gate="finite", verdict=Verdict.PASS, observed=0, bound=0, reason="fine"),)
POLICY = PromotionPolicy(watch_windows=3, watch_failures=2)
SHADOW = PromotionPolicy(shadow_windows=2, watch_failures=2)

BEFORE: tuple[Record, ...] = (
    bootstrap("a", retrain_on=("a",)),
    trained("1", "a"),
    judged("1"),
    settled("1"),
    scored("b"),
    trained("2", "b"),
)
PROMOTION: tuple[Record, ...] = (*BEFORE, judged("2", from_version="1"), settled("2"))
IN_SHADOW = PromotionRecord(
    version="2", from_version="1", by="gates", outcome=UNDECIDED, reason="in shadow", gates=GATES, shadow=True
)


def seen(name: str, *, newer: bool, older: bool, version: str = "1", error: str = "") -> WindowRecord:
    """A window on which the champion (newer) and `version` left their limits, or did not."""
    other = Comparison(
        version=version,
        alerts=None if error else 20,
        disagreements=None if error else 30,
        drifted=("scores",) if older else (),
        error=error,
    )
    return scored(name, drifted=("alerts",) if newer else (), compared=(other,))


def always(_: str) -> bool:
    return True


def test_a_champion_that_alone_leaves_its_limits_twice_is_rolled_back_and_banned() -> None:
    once = history(*PROMOTION, seen("c", newer=True, older=False))
    assert watched(once, POLICY) == "1"
    assert rollback_by_watch(once, POLICY, always) is None
    twice = [*PROMOTION, seen("c", newer=True, older=False), seen("d", newer=True, older=False)]
    record = rollback_by_watch(history(*twice), POLICY, always)
    assert record is not None
    assert (record.version, record.from_version, record.by) == ("1", "2", "watch")
    assert record.outcome is PromotionOutcome.ROLLED_BACK
    assert "c: alert rate 0.050 by version 1, 0.020 by version 1, 30 rows apart" in record.reason
    after = history(*twice, record, settled("1"))
    assert (after.champion, after.banned) == ("1", {"2"})
    assert watched(after, POLICY) is None
    assert rollback_by_watch(after, POLICY, always) is None


@pytest.mark.parametrize(("newer", "older"), [(False, False), (False, True), (True, True)])
def test_a_change_of_the_data_is_no_fault_of_the_champion(newer: bool, older: bool) -> None:
    windows = [seen(name, newer=newer, older=older) for name in "cde"]
    assert rollback_by_watch(history(*PROMOTION, *windows), POLICY, always) is None


def test_a_champion_that_cannot_score_what_the_former_one_can_is_rolled_back() -> None:
    other = Comparison(version="1", alerts=20)
    broken = [replace(quarantined(name), compared=(other,)) for name in "cd"]
    record = rollback_by_watch(history(*PROMOTION, *broken), POLICY, always)
    assert record is not None
    assert "version 1 could score it" in record.reason
    unreadable = [quarantined(name) for name in "cd"]
    assert rollback_by_watch(history(*PROMOTION, *unreadable), POLICY, always) is None


def test_the_watch_ends_after_its_windows() -> None:
    calm = [seen(name, newer=False, older=False) for name in "cde"]
    late = [seen(name, newer=True, older=False) for name in "fg"]
    assert watched(history(*PROMOTION, *calm), POLICY) is None
    assert rollback_by_watch(history(*PROMOTION, *calm, *late), POLICY, always) is None
    assert watched(history(*PROMOTION), replace(POLICY, watch_windows=0)) is None


def test_nothing_is_rolled_back_to_what_is_gone_or_cannot_score() -> None:
    bad = [seen(name, newer=True, older=False) for name in "cd"]
    assert rollback_by_watch(history(*PROMOTION, *bad), POLICY, lambda _: False) is None
    lost = [seen(name, newer=True, older=False, error="there is no such version") for name in "cde"]
    assert rollback_by_watch(history(*PROMOTION, *lost), POLICY, always) is None


def test_a_rollback_by_a_person_is_not_undone_by_the_watch() -> None:
    by_person = replace(judged("1", PromotionOutcome.ROLLED_BACK, "2"), by="person")
    bad = [seen(name, newer=True, older=False, version="2") for name in "cde"]
    past = history(*PROMOTION, by_person, settled("1"))
    assert watched(past, POLICY) is None
    assert rollback_by_watch(history(*PROMOTION, by_person, settled("1"), *bad), POLICY, always) is None


def test_a_first_champion_is_not_watched() -> None:
    past = history(*BEFORE[:4], scored("c", drifted=("alerts",)), scored("d", drifted=("alerts",)))
    assert watched(past, POLICY) is None
    assert rollback_by_watch(past, POLICY, always) is None


@pytest.mark.parametrize(
    ("mode", "trigger", "outcome"),
    [
        ("automatic", "drift", PROMOTED),
        ("manual", "first", UNDECIDED),
        ("manual", "age", UNDECIDED),
        ("manual_after_drift", "drift", UNDECIDED),
        ("manual_after_drift", None, UNDECIDED),
        ("manual_after_drift", "first", PROMOTED),
        ("manual_after_drift", "age", PROMOTED),
    ],
)
def test_the_mode_says_who_promotes(mode: Mode, trigger: str | None, outcome: PromotionOutcome) -> None:
    record = under_policy(
        judged("2", from_version="1"), trigger, PromotionPolicy(mode=mode), detector="autoencoder"
    )
    assert (record.outcome, record.shadow) == (outcome, False)
    for verdict in (REFUSED, UNDECIDED):
        held = judged("2", verdict, "1")
        assert under_policy(held, trigger, PromotionPolicy(mode=mode), detector="autoencoder") is held


@pytest.mark.parametrize("detector", sorted(BASELINES))
def test_a_baseline_waits_for_a_person_unless_configured_otherwise(detector: str) -> None:
    for passed in (judged("1"), judged("2", from_version="1")):
        record = under_policy(passed, "first", POLICY, detector=detector)
        assert (record.outcome, record.shadow) == (UNDECIDED, False)
        assert f"{detector} is a baseline" in record.reason
        promoting = replace(POLICY, baselines="promote")
        assert under_policy(passed, "first", promoting, detector=detector) is passed
    refused = judged("2", REFUSED, "1")
    assert under_policy(refused, "first", POLICY, detector=detector) is refused


def test_what_asked_for_a_training_is_in_the_ledger() -> None:
    past = history(*PROMOTION)
    first, second = past.trainings
    assert first.version == "1"
    assert past.trigger_of(first) is None  # `bootstrap` of these histories names no trigger
    decided = scored("b", retrain_on=("b",))
    assert decided.decision is not None
    drift = replace(decided, decision=replace(decided.decision, trigger="drift"))
    assert history(*BEFORE[:4], drift, second).trigger_of(second) == "drift"


def test_a_passed_candidate_goes_into_shadow_but_a_first_model_does_not() -> None:
    assert under_policy(judged("1"), "first", SHADOW, detector="vae") == judged("1")
    record = under_policy(judged("2", from_version="1"), "drift", SHADOW, detector="vae")
    assert (record.outcome, record.shadow) == (UNDECIDED, True)
    past = history(*BEFORE, record, settled("2"))
    assert shadowed(past) == "2"
    assert in_flight(past, []) == "version 2 scores in shadow"


def shadow(*windows: WindowRecord) -> History:
    return history(*BEFORE, IN_SHADOW, settled("2"), *windows)


def test_a_quiet_shadow_promotes() -> None:
    one = seen("c", newer=False, older=False, version="2")
    assert verdict_in_shadow(shadow(one), SHADOW) is None
    record = verdict_in_shadow(shadow(one, seen("d", newer=True, older=True, version="2")), SHADOW)
    assert record is not None
    assert (record.outcome, record.by, record.from_version, record.gates) == (PROMOTED, "gates", "1", GATES)


def test_a_shadow_that_alone_leaves_its_limits_is_refused() -> None:
    bad = [seen(name, newer=False, older=True, version="2") for name in "cd"]
    record = verdict_in_shadow(shadow(*bad), SHADOW)
    assert record is not None
    assert record.outcome is REFUSED
    lost = [
        seen(name, newer=False, older=False, version="2", error="12 scores are not finite") for name in "cd"
    ]
    record = verdict_in_shadow(shadow(*lost), SHADOW)
    assert record is not None
    assert record.outcome is REFUSED
    assert "12 scores are not finite" in record.reason


def test_a_champion_that_moved_during_the_shadow_leaves_it_to_a_person() -> None:
    past = shadow(seen("c", newer=False, older=False, version="2"))
    moved = history(*[entry.record for entry in past.entries], judged("7", from_version="1"), settled("7"))
    record = verdict_in_shadow(moved, SHADOW)
    assert record is not None
    assert (record.outcome, record.shadow) == (UNDECIDED, False)
    assert verdict_in_shadow(history(*[entry.record for entry in moved.entries], record), SHADOW) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=6), st.integers(1, 3))
def test_exactly_enough_windows_that_speak_against_it_alone_roll_back(
    windows: list[tuple[bool, bool, bool]], failures: int
) -> None:
    policy = PromotionPolicy(watch_windows=3, watch_failures=failures)
    records = [
        seen(f"w{place}", newer=newer, older=older, error="gone" if lost else "")
        for place, (newer, older, lost) in enumerate(windows)
    ]
    against = sum(newer and not older and not lost for newer, older, lost in windows[:3])
    record = rollback_by_watch(history(*PROMOTION, *records), policy, always)
    assert (record is not None) == (against >= failures)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sometimes"},
        {"unvetted": "ignore"},
        {"baselines": "sometimes"},
        {"watch_failures": 0},
        {"watch_windows": 1, "watch_failures": 2},
        {"shadow_windows": -1},
        {"watch_windows": float("nan")},
    ],
)
def test_a_policy_that_could_not_act_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        PromotionPolicy(**options)
