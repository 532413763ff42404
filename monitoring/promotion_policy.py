"""Who promotes, and what a new champion is held against: the configured part of every promotion."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from monitoring.records import PromotionRecord
from training.detectors import BASELINES
from training.types import PromotionOutcome

Mode = Literal["automatic", "manual", "manual_after_drift"]
Unvetted = Literal["put_back", "serve"]
Baselines = Literal["wait", "promote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPolicy:
    """How a candidate that passed its gates becomes the champion, and how long it is watched.

    Attributes:
        mode: `automatic`; `manual`, so that a person promotes every candidate; or `manual_after_drift`, so
            that a person promotes those trained because of drift.
        shadow_windows: Windows that a candidate scores beside the champion before it is promoted.
        watch_windows: Windows that the previous champion scores beside a new one; 0 watches nothing.
        watch_failures: Of these windows, those on which the newer version alone is off that roll it back,
            or refuse it in shadow.
        unvetted: What becomes of a version that a person moved the alias to although it was refused,
            rolled back, never judged, or is not in the ledger: `put_back` the alias, or `serve` it.
        baselines: Whether candidates of a baseline detector `wait` for a person, or may `promote` as others.
    """

    mode: Mode = "automatic"
    shadow_windows: int = 0
    watch_windows: int = 3
    watch_failures: int = 2
    unvetted: Unvetted = "put_back"
    baselines: Baselines = "wait"

    def __post_init__(self) -> None:
        choices = {"mode": Mode, "unvetted": Unvetted, "baselines": Baselines}
        for name, allowed in ((name, get_args(choice)) for name, choice in choices.items()):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed are {', '.join(allowed)}")
        for name in ("shadow_windows", "watch_windows"):
            windows = getattr(self, name)
            if windows and not windows >= self.watch_failures:
                raise ValueError(
                    f"{name} is {windows}; allowed are 0 and what is at least watch_failures, "
                    f"{self.watch_failures}"
                )
        if self.watch_failures < 1:
            raise ValueError(f"watch_failures is {self.watch_failures}; it must be at least 1")


def under_policy(
    record: PromotionRecord, trigger: str | None, policy: PromotionPolicy, *, detector: str
) -> PromotionRecord:
    """Return what the policy makes of a verdict of the gates; only a promotion is ever held back.

    `trigger` is what asked for the candidate's training: first, drift, age or person; None where it is not
    known; `detector` is the name of what was trained. A first model has nothing to be shadowed by.
    """
    if record.outcome is not PromotionOutcome.PROMOTED:
        return record
    passed = f"all {len(record.gates)} gates passed"
    if policy.baselines == "wait" and detector in BASELINES:
        told = f"waits for a person: {passed}, but {detector} is a baseline, and promotion.baselines is wait"
        return replace(record, outcome=PromotionOutcome.UNDECIDED, reason=told)
    if policy.mode == "manual" or (policy.mode == "manual_after_drift" and trigger in ("drift", None)):
        told = f"waits for a person: {passed}, and promotion.mode is {policy.mode}"
        return replace(record, outcome=PromotionOutcome.UNDECIDED, reason=told)
    if policy.shadow_windows and record.from_version is not None:
        told = f"in shadow: {passed}; scores {policy.shadow_windows} windows beside the champion first"
        return replace(record, outcome=PromotionOutcome.UNDECIDED, reason=told, shadow=True)
    return record
