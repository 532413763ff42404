"""When to retrain: a pure decision over the windows scored since the last training."""

from collections.abc import Sequence
from dataclasses import dataclass

from training.types import DriftStatus, RetrainingDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingPolicy:
    """Retrain when `drifted` of the last `of` windows drifted, the newest among them, with enough rows.

    Only windows scored since the last training count, so that a refused candidate is followed by
    new evidence and not by the same training again.
    """

    drifted: int = 2
    of: int = 3
    min_rows: int = 1_000
    bootstrap_windows: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.drifted <= self.of:
            raise ValueError(f"drifted is {self.drifted} of {self.of}; allowed is 1 <= drifted <= of")
        if self.min_rows < 1:
            raise ValueError(f"min_rows is {self.min_rows}; it must be positive")
        if self.bootstrap_windows < 1:
            raise ValueError(f"bootstrap_windows is {self.bootstrap_windows}; it must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOutlook:
    """What the policy knows of one scored window."""

    id: str
    rows: int
    status: DriftStatus


def decide_retraining(outlooks: Sequence[WindowOutlook], policy: RetrainingPolicy) -> RetrainingDecision:
    """Decide after the newest window of `outlooks` (oldest first, none from before the last training)."""
    recent = outlooks[-policy.of :]
    drifted = [outlook for outlook in recent if outlook.status is DriftStatus.DRIFTED]
    if not recent or recent[-1].status is not DriftStatus.DRIFTED:
        status = recent[-1].status if recent else "not scored"
        return RetrainingDecision(retrain=False, reason=f"the newest window is {status}")
    counted = f"{len(drifted)} of the last {len(recent)} windows drifted"
    if len(drifted) < policy.drifted:
        return RetrainingDecision(
            retrain=False, reason=f"{counted}; the policy asks for {policy.drifted} of {policy.of}"
        )
    rows = sum(outlook.rows for outlook in drifted)
    if rows < policy.min_rows:
        return RetrainingDecision(
            retrain=False, reason=f"{counted}, with {rows} rows; the policy asks for {policy.min_rows}"
        )
    return RetrainingDecision(
        retrain=True,
        reason=f"{counted} (policy: {policy.drifted} of {policy.of})",
        windows=tuple(outlook.id for outlook in drifted),
    )


def decide_first_training(windows: Sequence[tuple[str, int]], policy: RetrainingPolicy) -> RetrainingDecision:
    """Decide on a first model after the newest of all valid `windows` so far, given as (id, rows)."""
    rows = sum(rows for _, rows in windows)
    if len(windows) < policy.bootstrap_windows:
        reason = f"{len(windows)} of {policy.bootstrap_windows} windows for the first model"
        return RetrainingDecision(retrain=False, reason=reason)
    if rows < policy.min_rows:
        reason = f"{rows} of {policy.min_rows} rows for the first model"
        return RetrainingDecision(retrain=False, reason=reason)
    return RetrainingDecision(
        retrain=True,
        reason=f"first model, from {len(windows)} windows",
        windows=tuple(identifier for identifier, _ in windows),
    )
