"""What a decision to retrain is made of: the policy, what is looked at, and what was decided."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from monitoring.verdicts import DriftStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingPolicy:
    """When to retrain, and what holds a retraining back. Windows count, not hours: a replay decides as live.

    Attributes:
        drifted: Windows that must have drifted, the newest among them, ...
        of: ... of this many of the newest. Only windows scored since the last training count, so that a
            refused candidate is followed by new evidence and not by the same training again.
        min_rows: Rows that the windows to be trained on must hold, all of them newer than the last training.
        bootstrap_windows: Windows for the first model, and for a retraining by age.
        cooldown_windows: Windows that pass after a training before the next one may be decided.
        max_age_windows: Windows after which the champion's training is repeated without a drift, if given.
        daily_trainings: Trainings in a UTC day of the windows' own time, failed ones too.
    """

    drifted: int = 2
    of: int = 3
    min_rows: int = 1_000
    bootstrap_windows: int = 3
    cooldown_windows: int = 0
    max_age_windows: int | None = None
    daily_trainings: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.drifted <= self.of:
            raise ValueError(f"drifted is {self.drifted} of {self.of}; allowed is 1 <= drifted <= of")
        if self.cooldown_windows < 0:
            raise ValueError(f"cooldown_windows is {self.cooldown_windows}; it must not be negative")
        for name in ("min_rows", "bootstrap_windows", "max_age_windows", "daily_trainings"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOutlook:
    """What the retraining policy knows of one window; `status` is None before the first model."""

    id: str
    rows: int
    status: DriftStatus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingInputs:
    """Everything that a retraining decision looks at, after one window was taken.

    Attributes:
        windows: Those that can still count, oldest first, the newest last: scored since the last training,
            or before the first model all valid ones.
        champion: The version that serves.
        now: When the decision was made, on the ledger's clock; mutes are held against it.
        day: UTC day of the newest window by its event time, or by `now` where it has none.
        since_training: Windows taken since the last training ended; None when there was none.
        model_age: Windows taken since the champion's training ended; None without a champion.
        trainings_today: Trainings that ended and were decided on a window of the same `day`.
        in_flight: The training or candidate that is still under way.
        muted_until: End of the mute in force, with its reason.
    """

    windows: tuple[WindowOutlook, ...]
    champion: str | None
    now: datetime
    day: date
    since_training: int | None = None
    model_age: int | None = None
    trainings_today: int = 0
    in_flight: str | None = None
    muted_until: datetime | None = None
    mute_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingDecision:
    """Whether to retrain, why, and on which windows; with what it was made from, to be made again.

    Attributes:
        retrain: Something asks for a training and nothing holds it back.
        reason: What asks for it, or why nothing does; and everything that holds it back.
        windows: Windows to train on, or that would be if nothing held the training back.
        trigger: What asks for a training; None when nothing does.
        held: Names of the rules that hold back what was asked for.
        inputs: What was looked at.
        policy: The bounds that it was held against.
    """

    retrain: bool
    reason: str
    windows: tuple[str, ...] = ()
    trigger: Literal["first", "drift", "age"] | None = None
    held: tuple[str, ...] = ()
    inputs: RetrainingInputs | None = None
    policy: RetrainingPolicy | None = None
