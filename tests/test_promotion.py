"""Only a complete set of passes, about the champion that is champion still, promotes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.gate_evidence import GateLimits
from training.gates import GATES, gates_of
from training.promotion import decide_promotion
from training.types import GateResult, PromotionOutcome, Verdict

NAMES = (*GATES, "another")


def _result(gate: str, verdict: Verdict = Verdict.PASS) -> GateResult:
    return GateResult(gate=gate, verdict=verdict, observed=0.25, bound=None, reason=f"reason of {gate}")


ALL_PASS = tuple(_result(name) for name in GATES)
DEFAULT = gates_of(GateLimits())

reports = st.lists(st.builds(_result, st.sampled_from(NAMES), st.sampled_from(Verdict)), max_size=8)


@settings(deadline=None)
@given(reports, st.sampled_from([None, "1", "2"]), st.sampled_from([None, "1", "2"]))
def test_it_promotes_exactly_a_complete_set_of_passes_about_the_present_champion(
    gates: list[GateResult], then: str | None, now: str | None
) -> None:
    decision = decide_promotion(gates, then, now, demanded=GATES)
    complete = {result.gate for result in gates} >= set(GATES)
    passed = all(result.verdict == Verdict.PASS for result in gates)
    assert (decision.outcome == PromotionOutcome.PROMOTED) == (complete and passed and then == now)
    assert decision.judge_again == (then != now)
    assert decision.reason


@settings(deadline=None)
@given(st.sets(st.sampled_from(sorted(GATES)), min_size=1))
def test_a_missing_gate_never_promotes(missing: set[str]) -> None:
    gates = [result for result in ALL_PASS if result.gate not in missing]
    decision = decide_promotion(gates, "1", "1", demanded=GATES)
    if gates:
        assert decision.outcome == PromotionOutcome.UNDECIDED
        assert all(f"{name} not checked" in decision.reason for name in missing)
    else:
        assert decision.outcome == PromotionOutcome.REFUSED


@pytest.mark.parametrize("version", [None, "7"])
def test_all_passes_promote(version: str | None) -> None:
    decision = decide_promotion(ALL_PASS, version, version, demanded=GATES)
    assert decision.outcome == PromotionOutcome.PROMOTED
    assert "all 7 gates passed" in decision.reason


def test_only_gates_that_apply_are_demanded() -> None:
    assert set(GATES) - set(DEFAULT) == {"slices"}
    assert gates_of(GateLimits(slices=("plant",))) == GATES
    gates = [result for result in ALL_PASS if result.gate != "slices"]
    assert decide_promotion(gates, "1", "1", demanded=DEFAULT).outcome == PromotionOutcome.PROMOTED
    waits = decide_promotion(gates, "1", "1", demanded=GATES)
    assert waits.outcome == PromotionOutcome.UNDECIDED
    assert "slices not checked" in waits.reason


@pytest.mark.parametrize("other", [Verdict.UNDECIDED, Verdict.NOT_CHECKED, Verdict.FAIL])
def test_one_failure_refuses_and_the_reason_names_every_gate_that_did_not_pass(other: Verdict) -> None:
    gates = [
        _result("clean_load", Verdict.FAIL),
        *ALL_PASS[1:5],
        _result("better_than_baseline", other),
        ALL_PASS[6],
    ]
    decision = decide_promotion(gates, "1", "1", demanded=GATES)
    assert decision.outcome == PromotionOutcome.REFUSED
    for name in ("clean_load fail", "better_than_baseline"):
        assert name in decision.reason
    assert "(observed 0.25, bound unknown): reason of clean_load" in decision.reason
    assert "alert_rate" not in decision.reason


@pytest.mark.parametrize("verdict", [Verdict.UNDECIDED, Verdict.NOT_CHECKED])
@pytest.mark.parametrize("name", NAMES)
def test_an_open_gate_waits_for_a_person(verdict: Verdict, name: str) -> None:
    gates = [*(result for result in ALL_PASS if result.gate != name), _result(name, verdict)]
    decision = decide_promotion(gates, None, None, demanded=GATES)
    assert decision.outcome == PromotionOutcome.UNDECIDED
    assert not decision.judge_again
    assert decision.reason.startswith(f"waits for a person: {name} {verdict.replace('_', ' ')}")


@pytest.mark.parametrize(("then", "now"), [("1", "2"), (None, "1"), ("1", None)])
def test_a_champion_that_moved_is_judged_against_again(then: str | None, now: str | None) -> None:
    decision = decide_promotion(ALL_PASS, then, now, demanded=GATES)
    assert decision.outcome == PromotionOutcome.UNDECIDED
    assert decision.judge_again
    assert "judge it again" in decision.reason
