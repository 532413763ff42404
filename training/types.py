"""The vocabulary: what the four rooms say to each other.

Frozen values, validated where they enter. Times are aware and in UTC, rates are fractions of one,
and every verdict carries its reason.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Literal

ColumnKind = Literal["numeric", "categorical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One feature: `numeric` columns hold real numbers or NaN, `categorical` ones strings or None."""

    name: str
    kind: ColumnKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSchema:
    """The features of a model in order, and the columns that are known but never features."""

    features: tuple[Column, ...]
    time_column: str | None = None
    label_column: str | None = None
    ignored: tuple[str, ...] = ()

    def names(self, kind: ColumnKind | None = None) -> list[str]:
        """Return the names of all features, or of those of one kind."""
        return [column.name for column in self.features if kind is None or column.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """One stored object as it was listed: `version` changes whenever its content does."""

    key: str
    size: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A batch of rows that arrived together; `id` is the object's name or its partition path."""

    id: str
    objects: tuple[ObjectVersion, ...]

    @property
    def fingerprint(self) -> str:
        """A digest of the listed versions, equal only while the content is unchanged."""
        listed = "\n".join(f"{item.key} {item.version}" for item in self.objects)
        return hashlib.sha256(listed.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowVersion:
    """A window together with the fingerprint under which it was taken (lineage)."""

    id: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSpec:
    """A detector by its name in `training.detectors`, and the options that its config validates."""

    name: str = "autoencoder"
    options: dict[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """How the contamination guard chooses training rows.

    Attributes:
        trim_share: The share of the rows that may be unlabelled anomalies.
        trusted_alert_factor: How many times its target the champion's alert rate may be before alerts are
            put down to drift.
    """

    trim_share: float = 0.05
    trusted_alert_factor: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """Everything that determines a training; its id is a content hash, so a re-run finds its result."""

    model: str
    windows: tuple[WindowVersion, ...]
    schema: FeatureSchema
    detector: DetectorSpec
    target_alert_rate: float
    threshold_method: str
    world_size: int
    seed: int
    champion_version: str | None
    guard: GuardPolicy = GuardPolicy()

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that change with any field."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The flood mark: rows that score above `value` are alerts."""

    value: float
    method: str
    target_alert_rate: float
    calibration_rows: int

    def __post_init__(self) -> None:
        if not 0 < self.target_alert_rate < 1:
            raise ValueError(f"target_alert_rate is {self.target_alert_rate}; it must lie between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What the control plane hands to the ranks, as one JSON file. Paths are absolute.

    `reference_rows` and `held_out_rows`, which the model is not trained on, are rows as they arrive, with
    their times and before the contamination guard took any out: a reference without its tail would call
    the next unchanged window drifted.
    """

    request: TrainingRequest
    training_rows: str
    calibration_rows: str
    reference_rows: str
    held_out_rows: str
    output: str
    format_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What a training leaves behind, as one JSON file that is written last."""

    request_id: str
    world_size: int
    rows: int
    epochs: int
    loss: float
    seconds: float
    threshold: Threshold
    artifact: str
    format_version: Literal[1] = 1


class DriftStatus(StrEnum):
    """INCONCLUSIVE never passes for STABLE."""

    STABLE = "STABLE"
    DRIFTED = "DRIFTED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDrift:
    """One column's distance from the reference; `score` is None when it could not be computed."""

    column: str
    method: str
    score: float | None
    threshold: float

    @property
    def drifted(self) -> bool | None:
        """None when there is no score: unknown is neither drifted nor stable."""
        return None if self.score is None else self.score >= self.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftTest:
    """One test of a window as a whole; `statistic` is None when it could not be computed."""

    test: Literal["joint", "scores", "alerts", "stream"]
    status: DriftStatus
    statistic: float | None
    bound: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftVerdict:
    """The verdict on one window over all tests; `share` is the share of the scored columns that drifted."""

    status: DriftStatus
    share: float | None
    reason: str
    columns: tuple[ColumnDrift, ...] = ()
    tests: tuple[DriftTest, ...] = ()

    @property
    def drifted_columns(self) -> list[str]:
        """Names of the drifted columns, the furthest beyond its threshold first."""
        drifted = [column for column in self.columns if column.drifted]
        drifted.sort(key=lambda column: (column.score or 0.0) / column.threshold, reverse=True)
        return [column.column for column in drifted]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """What is kept of a window's scores: quantiles, and where they stand among the champion's own.

    Attributes:
        quantiles: Score at the probabilities .5, .9, .99 and 1, by the probability's text.
        ranks: Mean rank of consecutive stretches of rows among the champion's held-out scores, each from 0
            to 1; 0.5 is expected of unchanged rows.
        stretch: Rows of one stretch, on average.
    """

    quantiles: dict[str, float]
    ranks: tuple[float, ...] = ()
    stretch: float = 0.0


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


class Verdict(StrEnum):
    """A gate that was not run is `not_checked`, never `pass`."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    UNDECIDED = "undecided"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One gate's verdict with the observed value and the bound it was held against."""

    gate: str
    verdict: Verdict
    observed: float | None
    bound: float | None
    reason: str


class PromotionOutcome(StrEnum):
    """What became of a candidate, or of a champion."""

    PROMOTED = "promoted"
    REFUSED = "refused"
    UNDECIDED = "undecided"
    ROLLED_BACK = "rolled_back"
