"""The records of a model's ledger: one immutable entry for each thing that happened, in one order."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from monitoring.event_times import EventTimes
from monitoring.retraining import RetrainingDecision
from monitoring.verdicts import DriftStatus, DriftVerdict, ScoreSummary
from training.types import DetectorSpec, FeatureSchema, GateResult, PromotionOutcome, Threshold, WindowVersion

Lane = Literal["windows", "training"]
LANES: frozenset[Lane] = frozenset(("windows", "training"))
"""Steps of one lane are taken one after the other, and the lanes run side by side: windows are taken while a
training runs for hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """The entry's owner is at work on `step`; until it writes again, everybody else keeps off its lane.

    Without a lane, as earlier versions wrote it, it holds both.
    """

    step: str
    lane: Lane | None = None
    kind: Literal["claim"] = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """`step` ended with an error, and is to be tried again; `unexpected` errors are faults of ours."""

    step: str
    error: str
    unexpected: bool = False
    kind: Literal["failure"] = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecord:
    """Who was at work on `step` was told to end (cancelled, out of time, interrupted): it is still owed."""

    step: str
    reason: str
    kind: Literal["release"] = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How another version would have judged a window that the champion scored.

    Attributes:
        version: The previous champion during a watch, or a challenger in shadow.
        alerts: Rows above its own flood mark; None when it could not score them.
        disagreements: Rows that only one of the two alerts on; None when either could not score.
        drifted: Which of its tests `alerts` and `scores` found a change against its own reference, or could
            not be computed.
        error: Why it could not be compared; empty when it was.
    """

    version: str
    alerts: int | None = None
    disagreements: int | None = None
    drifted: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """A window was taken, and this is what was found; `schema` is set for bootstrap windows.

    `configuration` is a digest of the settings by which it was read. `event_time` is the median of its rows'
    times, where they have any: a few broken clocks do not move it. `compared` are other versions' views of
    it; one that is quarantined has them only when it is the champion that could not score it.
    """

    window: WindowVersion
    digest: str
    rows: int
    outcome: Literal["bootstrap", "scored", "quarantined", "skipped"]
    reason: str
    schema: FeatureSchema | None = None
    champion_version: str | None = None
    alerts: int | None = None
    configuration: str = ""
    times: EventTimes | None = None
    scores: ScoreSummary | None = None
    drift: DriftVerdict | None = None
    decision: RetrainingDecision | None = None
    event_time: datetime | None = None
    compared: tuple[Comparison, ...] = ()
    kind: Literal["window"] = "window"

    @property
    def alert_rate(self) -> float | None:
        """Share of the rows above the champion's threshold."""
        return None if self.alerts is None else self.alerts / self.rows

    @property
    def has_page(self) -> bool:
        """Whether people are to look at it: set aside, drifted by any test, or not to be told."""
        if self.drift is None:
            return self.outcome == "quarantined"
        drifted = any(test.status is DriftStatus.DRIFTED for test in self.drift.tests)
        return drifted or self.drift.status is not DriftStatus.STABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainRecord:
    """A person asks for a training on these windows, by id, whatever the policy says."""

    windows: tuple[str, ...]
    reason: str
    by: Literal["person"] = "person"
    kind: Literal["retrain"] = "retrain"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """A training ended: `version` is the registered candidate, or `error` says why there is none.

    `guard` says how many rows the contamination guard left out and by which rule.
    """

    request_id: str
    reason: str
    windows: tuple[WindowVersion, ...]
    detector: DetectorSpec
    world_size: int
    rows: int
    seconds: float
    outcome: Literal["registered", "failed"]
    threshold: Threshold | None = None
    version: str | None = None
    error: str | None = None
    guard: str = ""
    kind: Literal["training"] = "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRecord:
    """A candidate was judged, or a person moved the champion. The aliases follow this record.

    `shadow`: the undecided candidate waits for no person, but scores beside the champion for some windows.
    """

    version: str
    from_version: str | None
    by: Literal["gates", "person", "watch"]
    outcome: PromotionOutcome
    reason: str
    gates: tuple[GateResult, ...] = ()
    shadow: bool = False
    kind: Literal["promotion"] = "promotion"

    @property
    def page(self) -> str | None:
        """Name of the gate report's page; None where no gate was run."""
        return f"gates-{self.version}" if self.gates else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRecord:
    """The registry's aliases now say what the promotion of `version` decided."""

    version: str
    kind: Literal["settled"] = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MuteRecord:
    """A person forbids retraining until a time, by the ledger's clock; None ends the mute before its time."""

    until: datetime | None
    reason: str
    by: Literal["person"] = "person"
    kind: Literal["mute"] = "mute"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOutcome:
    """What one channel answered to a message; `answer` never holds a URL, which may be a secret."""

    channel: str
    delivered: bool
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """A message about an incident was sent, and this is what became of it; `test` is about none."""

    incident: str
    stage: Literal["opened", "escalated", "resolved", "test"]
    outcomes: tuple[ChannelOutcome, ...]
    kind: Literal["alert"] = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnoozeRecord:
    """A person wants no messages about these open incidents until a time (UTC)."""

    incidents: tuple[str, ...]
    until: datetime
    reason: str
    kind: Literal["snooze"] = "snooze"


Record = (
    ClaimRecord
    | FailureRecord
    | ReleaseRecord
    | WindowRecord
    | RetrainRecord
    | TrainingRecord
    | PromotionRecord
    | SettledRecord
    | MuteRecord
    | AlertRecord
    | SnoozeRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record with its place in the ledger (from 1, without holes), its time in UTC and its writer."""

    sequence: int
    at: datetime
    record: Record
    owner: str = ""
