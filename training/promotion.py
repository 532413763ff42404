"""Whether a judged candidate becomes the champion."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from training.types import GateResult, PromotionOutcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionDecision:
    """What becomes of the candidate. `judge_again`: the gates spoke about a champion that is no more."""

    outcome: PromotionOutcome
    reason: str
    judge_again: bool = False


def decide_promotion(
    gates: Sequence[GateResult],
    champion_at_judging: str | None,
    champion_now: str | None,
    *,
    demanded: Collection[str],
) -> PromotionDecision:
    """Promote only what passed every gate that is demanded, against the champion that is champion still.

    In this order: a champion that moved since the judging leaves the candidate undecided with
    `judge_again`; an empty report or a failed gate refuses it; a gate that is missing, undecided or not
    checked leaves it undecided, waiting for a person as challenger. Gates beyond those count as well.

    Args:
        gates: The report.
        champion_at_judging: The version that the gates compared with; None without one.
        champion_now: The version that is champion when this is asked.
        demanded: Names of the gates that apply, `training.gates.gates_of`.
    """
    if champion_at_judging != champion_now:
        reason = f"judged against {_version(champion_at_judging)}, but now there is {_version(champion_now)}"
        return PromotionDecision(
            outcome=PromotionOutcome.UNDECIDED, reason=f"{reason}: judge it again", judge_again=True
        )
    if not gates:
        return PromotionDecision(outcome=PromotionOutcome.REFUSED, reason="refused: no gate was run")
    reported = {result.gate for result in gates}
    missing = [
        GateResult(gate=name, verdict=Verdict.NOT_CHECKED, observed=None, bound=None, reason="it was not run")
        for name in demanded
        if name not in reported
    ]
    failed = [result for result in gates if result.verdict == Verdict.FAIL]
    unsure = [result for result in gates if result.verdict not in (Verdict.PASS, Verdict.FAIL)] + missing
    if failed:
        reason = f"refused: {_listed([*failed, *unsure])}"
        return PromotionDecision(outcome=PromotionOutcome.REFUSED, reason=reason)
    if unsure:
        reason = f"waits for a person: {_listed(unsure)}"
        return PromotionDecision(outcome=PromotionOutcome.UNDECIDED, reason=reason)
    reason = f"promoted: all {len(gates)} gates passed against {_version(champion_now)}"
    return PromotionDecision(outcome=PromotionOutcome.PROMOTED, reason=reason)


def _listed(results: Iterable[GateResult]) -> str:
    return "; ".join(
        f"{result.gate} {result.verdict.replace('_', ' ')} (observed {_figure(result.observed)}, "
        f"bound {_figure(result.bound)}): {result.reason}"
        for result in results
    )


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _version(version: str | None) -> str:
    return "no champion" if version is None else f"champion {version}"
