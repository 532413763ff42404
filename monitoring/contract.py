"""What the data contract is made of: its bounds, the champion's profile, and one look at a window."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal

import numpy as np
import pandas as pd

from monitoring.frames import clean_frame, column_count, float_values, value_kind
from training.errors import ConfigurationError, InvalidWindowError
from training.types import FeatureSchema

Severity = Literal["warn", "quarantine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule, as a sentence with the numbers; `column` is None when it concerns the window."""

    check: str
    column: str | None
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLimits:
    """The bounds of the contract; rates are shares of the window's rows, rises are above the reference's."""

    min_rows: int = 50
    missing_rise_warn: float = 0.05
    missing_rise_quarantine: float = 0.2
    infinite_share_quarantine: float = 0.01
    duplicate_rise_quarantine: float = 0.2
    constant_chance: float = 0.001
    """A constant column is reported when sampling the reference would give one less often than this."""
    future_tolerance_days: float = 1.0

    def __post_init__(self) -> None:
        if self.min_rows < 1:
            raise ConfigurationError(f"min_rows is {self.min_rows}; it must be at least 1")
        if not 0 <= self.future_tolerance_days < float("inf"):
            raise ConfigurationError(
                f"future_tolerance_days is {self.future_tolerance_days}; it must be 0 or more"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in {"min_rows", "future_tolerance_days"} and not 0 <= value <= 1:
                raise ConfigurationError(f"{field.name} is {value}; it must lie between 0 and 1")
        if not self.missing_rise_warn <= self.missing_rise_quarantine:
            raise ConfigurationError(
                f"missing_rise_warn ({self.missing_rise_warn}) must not exceed "
                f"missing_rise_quarantine ({self.missing_rise_quarantine})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """Facts about one reference column: infinities count as missing, `top_share` is of present values."""

    missing_rate: float
    top_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Facts about the champion's reference, computed once for any number of windows."""

    rows: int
    duplicate_share: float
    columns: Mapping[str, ColumnProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the checks read. `missing` and `infinite` are shares, of the features of the right kind only."""

    frame: pd.DataFrame
    schema: FeatureSchema
    profile: Profile | None
    limits: QualityLimits
    now: datetime
    once: frozenset[str]
    """Names that stand in the frame exactly once."""
    kinds: dict[str, str]
    missing: dict[str, float]
    infinite: dict[str, float]

    def referenced(self) -> Iterator[tuple[str, ColumnProfile]]:
        """Return the features of the right kind that have a profile to be compared with."""
        columns = self.profile.columns if self.profile is not None else {}
        return ((name, columns[name]) for name in self.missing if name in columns)


def profile_of(reference: pd.DataFrame, schema: FeatureSchema) -> Profile:
    """Take the facts of the champion's reference that windows are compared with.

    Raises:
        InvalidWindowError: The reference lacks a feature or holds one of another kind.
    """
    clean = clean_frame(reference, schema)
    columns = {}
    for name in schema.names():
        present = clean[name].dropna()
        columns[name] = ColumnProfile(
            missing_rate=1 - len(present) / len(clean) if len(clean) else 1.0,
            top_share=present.value_counts(sort=False).max() / len(present) if len(present) else 1.0,
        )
    return Profile(rows=len(clean), duplicate_share=duplicate_share(reference), columns=columns)


def inspect(
    frame: pd.DataFrame, schema: FeatureSchema, profile: Profile | None, now: datetime, limits: QualityLimits
) -> Inspection:
    """Look at every known column once; what the checks share."""
    named = {*schema.names(), schema.time_column, schema.label_column} - {None}
    once = frozenset(str(name) for name in named if column_count(frame, name) == 1)
    kinds: dict[str, str] = {}
    missing: dict[str, float] = {}
    infinite: dict[str, float] = {}
    for column in schema.features if len(frame) else ():
        name = column.name
        if name not in once:
            continue
        kinds[name] = value_kind(frame[name])
        if kinds[name] == "empty":
            missing[name], infinite[name] = 1.0, 0.0
        elif kinds[name] == column.kind == "categorical":
            missing[name], infinite[name] = float(frame[name].isna().mean()), 0.0
        elif kinds[name] == column.kind:
            try:
                numbers = float_values(frame[name])
            except InvalidWindowError:
                kinds[name] = "unsupported"
            else:
                missing[name] = 1 - float(np.isfinite(numbers).mean())
                infinite[name] = float(np.isinf(numbers).mean())
    return Inspection(
        frame=frame,
        schema=schema,
        profile=profile,
        limits=limits,
        now=now,
        once=once,
        kinds=kinds,
        missing=missing,
        infinite=infinite,
    )


def duplicate_share(frame: pd.DataFrame) -> float:
    """Return the share of rows that repeat an earlier one, by 64-bit hashes of whole rows."""
    if frame.empty:
        return 0.0
    plain = {}
    for position in range(frame.shape[1]):
        values = frame.iloc[:, position]
        if isinstance(values.dtype, pd.CategoricalDtype):
            values = values.astype(object)
        kind = value_kind(values)
        # pandas hashes no lists and no integers beyond 64 bits; text is by far the most frequent object.
        odd = kind == "unsupported" or (values.dtype == object and kind != "categorical")
        plain[position] = values.map(repr) if odd else values
    hashes = pd.util.hash_pandas_object(pd.DataFrame(plain, index=frame.index, copy=False), index=False)
    return float(hashes.duplicated().mean())
