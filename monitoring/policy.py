"""When to retrain: a pure decision, made of what asks for a training and of what holds one back.

Each trigger and each hold is one small function that returns its reason. All holds are asked, and all
that object are reported together. To add one, write a function and add it to `TRIGGERS` or `HOLDS`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from monitoring.retraining import RetrainingDecision, RetrainingInputs, RetrainingPolicy, WindowOutlook
from monitoring.verdicts import DriftStatus

JUDGED = (DriftStatus.STABLE, DriftStatus.DRIFTED)


def newest(windows: Sequence[WindowOutlook], *, at_least: int, min_rows: int) -> tuple[WindowOutlook, ...]:
    """Return the newest windows: so many, and as many more as it takes to hold the rows, if they do."""
    start = max(0, len(windows) - at_least)
    while start and sum(window.rows for window in windows[start:]) < min_rows:
        start -= 1
    return tuple(windows[start:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one trigger says: to train on these windows, or on none; and why."""

    reason: str
    windows: tuple[WindowOutlook, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all windows."""
        return sum(window.rows for window in self.windows)


def first_model(inputs: RetrainingInputs, policy: RetrainingPolicy) -> Proposal | None:
    """Ask for the first model when enough valid windows have come."""
    if inputs.champion is not None:
        return None
    count = len(inputs.windows)
    if count < policy.bootstrap_windows:
        return Proposal(reason=f"{count} of {policy.bootstrap_windows} windows for the first model")
    return Proposal(reason=f"first model, from {count} windows", windows=inputs.windows)


def drift(inputs: RetrainingInputs, policy: RetrainingPolicy) -> Proposal | None:
    """Ask for a training on those of the last windows that drifted: many of them, the newest among them.

    Drifted windows from further back, but since the last training, join in where the rows are too few.
    """
    if inputs.champion is None:
        return None
    recent = inputs.windows[-policy.of :]
    drifted = tuple(window for window in recent if window.status is DriftStatus.DRIFTED)
    if not recent or recent[-1].status is not DriftStatus.DRIFTED:
        return Proposal(reason=f"the newest window is {recent[-1].status if recent else 'not scored'}")
    counted = f"{len(drifted)} of the last {len(recent)} windows drifted"
    asked = f"{policy.drifted} of {policy.of}"
    if len(drifted) < policy.drifted:
        return Proposal(reason=f"{counted}; the policy asks for {asked}")
    since = [window for window in inputs.windows if window.status is DriftStatus.DRIFTED]
    wanted = newest(since, at_least=len(drifted), min_rows=policy.min_rows)
    return Proposal(reason=f"{counted} (policy: {asked})", windows=wanted)


def age(inputs: RetrainingInputs, policy: RetrainingPolicy) -> Proposal | None:
    """Ask for a training on the newest judged windows when the model is old, drift or not."""
    if policy.max_age_windows is None or inputs.model_age is None:
        return None
    aged = f"the model is {inputs.model_age} windows old (policy: {policy.max_age_windows})"
    judged = tuple(window for window in inputs.windows if window.status in JUDGED)
    if inputs.model_age < policy.max_age_windows:
        return Proposal(reason=aged)
    if len(judged) < policy.bootstrap_windows or judged[-1] != inputs.windows[-1]:
        needed = f"the newest of {policy.bootstrap_windows} windows that have a drift verdict"
        return Proposal(reason=f"{aged}, and waits for {needed}")
    wanted = newest(judged, at_least=policy.bootstrap_windows, min_rows=policy.min_rows)
    return Proposal(reason=aged, windows=wanted)


Trigger = Literal["first", "drift", "age"]
TRIGGERS: Final[dict[Trigger, Callable[[RetrainingInputs, RetrainingPolicy], Proposal | None]]] = {
    "first": first_model,
    "drift": drift,
    "age": age,
}
"""What may ask for a training; where several do, the first whose windows hold enough rows."""


def rows(_: RetrainingInputs, policy: RetrainingPolicy, proposal: Proposal) -> str | None:
    """Hold until the windows to be trained on have enough rows."""
    if proposal.rows >= policy.min_rows:
        return None
    return f"{proposal.rows} of {policy.min_rows} rows to train on"


def cooldown(inputs: RetrainingInputs, policy: RetrainingPolicy, _: Proposal) -> str | None:
    """Hold until enough windows have passed since the last training."""
    if inputs.since_training is None or inputs.since_training > policy.cooldown_windows:
        return None
    left = policy.cooldown_windows + 1 - inputs.since_training
    return f"cooldown of {policy.cooldown_windows} windows after a training: {left} more to come"


def in_flight(inputs: RetrainingInputs, _: RetrainingPolicy, __: Proposal) -> str | None:
    """Hold while another training or candidate is under way."""
    return inputs.in_flight


def budget(inputs: RetrainingInputs, policy: RetrainingPolicy, _: Proposal) -> str | None:
    """Hold when the day's trainings are used up."""
    if inputs.trainings_today < policy.daily_trainings:
        return None
    return f"{inputs.trainings_today} of {policy.daily_trainings} trainings on {inputs.day}"


def mute(inputs: RetrainingInputs, _: RetrainingPolicy, __: Proposal) -> str | None:
    """Hold while a person's mute is in force."""
    if inputs.muted_until is None or inputs.now >= inputs.muted_until:
        return None
    return f"muted until {inputs.muted_until.isoformat(timespec='minutes')}: {inputs.mute_reason}"


HOLDS: Final[dict[str, Callable[[RetrainingInputs, RetrainingPolicy, Proposal], str | None]]] = {
    "rows": rows,
    "cooldown": cooldown,
    "in_flight": in_flight,
    "budget": budget,
    "mute": mute,
}
"""What may hold a training back."""


def decide_retraining(inputs: RetrainingInputs, policy: RetrainingPolicy) -> RetrainingDecision:
    """Decide after the newest window; what holds a training back does not hide what asked for it."""
    proposals = {
        name: proposal
        for name, trigger in TRIGGERS.items()
        if (proposal := trigger(inputs, policy)) is not None
    }
    asking = [name for name, proposal in proposals.items() if proposal.windows]
    if not asking:
        quiet = "; ".join(proposal.reason for proposal in proposals.values())
        return RetrainingDecision(retrain=False, reason=quiet, inputs=inputs, policy=policy)
    trigger = next((name for name in asking if proposals[name].rows >= policy.min_rows), asking[0])
    proposal = proposals[trigger]
    held = {
        name: reason for name, hold in HOLDS.items() if (reason := hold(inputs, policy, proposal)) is not None
    }
    return RetrainingDecision(
        retrain=not held,
        reason=f"{proposal.reason}, held back: {'; '.join(held.values())}" if held else proposal.reason,
        windows=tuple(window.id for window in proposal.windows),
        trigger=trigger,
        held=tuple(held),
        inputs=inputs,
        policy=policy,
    )
