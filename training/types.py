"""The vocabulary: what the four rooms say to each other.

Frozen values, validated where they enter. Times are aware and in UTC, rates are fractions of one,
and every verdict carries its reason.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Literal

from training.supervision import Supervision

ColumnKind = Literal["numeric", "categorical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One feature: `numeric` columns hold real numbers or NaN, `categorical` ones strings or None."""

    name: str
    kind: ColumnKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSchema:
    """The features of a model in order, and the columns that are known but never features.

    `entity_column` says whose row it is, where rows of several machines stand together: detectors of
    sequences never take rows of two entities for one sequence.
    """

    features: tuple[Column, ...]
    time_column: str | None = None
    label_column: str | None = None
    ignored: tuple[str, ...] = ()
    entity_column: str | None = None

    def names(self, kind: ColumnKind | None = None) -> list[str]:
        """Return the names of all features, or of those of one kind."""
        return [column.name for column in self.features if kind is None or column.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """One stored object as it was listed: `version` changes whenever its content does.

    `modified` is when it was written, in seconds since 1970 on this machine's clock, where that is known.
    """

    key: str
    size: int
    version: str
    modified: float | None = field(default=None, compare=False)


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
    threshold_beta: float = 1.0
    alerts_per_day: float | None = None
    supervision: Supervision = field(default_factory=Supervision)

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that change with any field."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The flood mark: rows that score above `value` are alerts.

    Attributes:
        value: Of a score.
        method: The calibrator's name.
        target_alert_rate: Of normal rows, as it was calibrated: what was asked for, or what the calibrator
            came to where it was asked for something else.
        calibration_rows: The normal ones.
        note: What the calibrator did otherwise than asked, and why.
    """

    value: float
    method: str
    target_alert_rate: float
    calibration_rows: int
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.target_alert_rate < 1:
            raise ValueError(f"target_alert_rate is {self.target_alert_rate}; it must lie between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What the control plane hands to the ranks, as one JSON file. Paths are absolute.

    Rows are Parquet: a file or a folder of them, on disk or at `s3://bucket/key`, or a list of such.

    `reference_rows` and `held_out_rows`, which the model is not trained on, are rows as they arrive, with
    their times and before the contamination guard took any out: a reference without its tail would call
    the next unchanged window drifted. `calibration_anomalies` are the labelled anomalies that belong to the
    calibration rows, `rows_per_day` is the pace of the windows; a calibrator may need them.
    `training_anomalies` are the labelled and made ones that `request.supervision` asks for.

    Attributes:
        checkpoints: A folder or `s3://bucket/prefix` for what a killed training goes on from; None is a
            folder in `output`.
        checkpoint_seconds: One is written after each epoch, and within a longer one so often.
        fewest_ranks: An elastic training may run with from so many to the request's `world_size` ranks.
        max_gap_seconds: The longest pause within a sequence; None where every row stands for itself. The rows
            files then hold whole stretches, as `training.sequences` tells.
        megabytes_per_rank: Memory for a rank's rows; where they need more, they are streamed from `scratch`.
            None is half of what is free, divided by the ranks of a host.
        scratch: A folder on each host's own disk; None is `output`.
        s3_endpoint_url: Where S3 is, if not at Amazon; None is AWS_ENDPOINT_URL, if that is set.
    """

    request: TrainingRequest
    training_rows: str | tuple[str, ...]
    calibration_rows: str
    reference_rows: str
    held_out_rows: str
    output: str
    calibration_anomalies: str | None = None
    training_anomalies: str | None = None
    rows_per_day: float | None = None
    checkpoints: str | None = None
    checkpoint_seconds: float = 120.0
    fewest_ranks: int | None = None
    max_gap_seconds: float | None = None
    megabytes_per_rank: float | None = None
    scratch: str | None = None
    s3_endpoint_url: str | None = None
    format_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFigures:
    """What one epoch came to: mean losses over the rows of all ranks, and training rows a second of them."""

    loss: float
    validation_loss: float
    rows_per_second: float


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
    """What became of a candidate, or of a champion; `put_back`: a person's move of the alias was undone."""

    PROMOTED = "promoted"
    REFUSED = "refused"
    UNDECIDED = "undecided"
    ROLLED_BACK = "rolled_back"
    PUT_BACK = "put_back"
