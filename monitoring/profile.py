"""The facts about rows that the data contract is held against, from one pass in bounded memory.

A window and the champion's reference have the same kind of profile, so that a check is a pure function
of the two. Exact: rows, missing, infinite, least and greatest values, and whether a column is constant.
Approximate beyond a cap: repeated rows (`HASH_CAP`), categories (`CATEGORY_CAP`), gaps in time (`GAP_CAP`);
shares of values beyond a bound and quantiles come from the sample of at most `ROW_CAP` rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.batch_column import Batch, BatchColumn, Numbers
from monitoring.distances import sampled_positions
from monitoring.event_times import TimeProfile, TimeProfiler
from monitoring.frames import ValueKind, float_values
from monitoring.row_hashes import RepeatedRows, RowHasher
from training.errors import InvalidWindowError
from training.types import Column, FeatureSchema

CATEGORY_CAP = 10_000
"""Categories of a column that are counted; the rows of further ones are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """Facts about one column.

    Attributes:
        kind: What it holds; "unsupported" too where it holds several kinds.
        held: What it holds, in words, where that is not what the schema says.
        missing: Rows without a value, NaN among them.
        infinite: Rows with an infinite number.
        low: Least finite number; None without any.
        high: Greatest finite number.
        categories: Rows of each category, of at most `CATEGORY_CAP` ones.
        uncounted: Rows of further categories.
        top_share: Share of the most frequent value among the present ones, of numbers in the sample.
    """

    kind: ValueKind
    held: str = ""
    missing: int = 0
    infinite: int = 0
    low: float | None = None
    high: float | None = None
    categories: Mapping[str, int] = field(default_factory=dict)
    uncounted: int = 0
    top_share: float = 1.0

    @property
    def constant(self) -> float | str | None:
        """The value of every row that has one; None where values differ."""
        if self.kind == "numeric":
            return self.low if self.low == self.high and not self.infinite else None
        return next(iter(self.categories)) if len(self.categories) == 1 and not self.uncounted else None


@dataclass(frozen=True, kw_only=True)
class WindowProfile:
    """Facts about the rows of a window, or of a reference.

    Attributes:
        rows: Number of rows.
        names: Names of all columns in order; repeated ones as often as they stand there.
        columns: Facts about each feature that stands there exactly once; none without rows.
        repeated_share: Share of rows that repeat an earlier one in all columns.
        time: Facts about the time column, if there is one.
        label_held: What the label column holds, where that are no labels.
        sample: At most `ROW_CAP` rows of the features and the time column, as `capped_sample` draws them.
    """

    rows: int
    names: tuple[str, ...]
    columns: Mapping[str, ColumnProfile]
    repeated_share: float
    time: TimeProfile | None
    label_held: str
    sample: pd.DataFrame

    @cached_property
    def once(self) -> frozenset[str]:
        """Names that stand there exactly once."""
        return frozenset(name for name in self.names if self.names.count(name) == 1)

    def missing_rate(self, name: str) -> float:
        """Share of the rows without a usable value of a feature: infinities are none."""
        column = self.columns[name]
        return (column.missing + column.infinite) / self.rows


def profile_frame(frame: pd.DataFrame, schema: FeatureSchema, *, seed: int = 0) -> WindowProfile:
    """Take the profile of rows that are in memory anyway."""
    profiler = Profiler(schema, rows=len(frame), seed=seed)
    profiler.add(frame)
    return profiler.finish()


class Profiler:
    """Takes the batches of a window, in their order, and keeps its profile only."""

    def __init__(self, schema: FeatureSchema, *, rows: int, seed: int = 0) -> None:
        """Prepare for `rows` rows in all; `seed` is that of the sample."""
        self.schema = schema
        self.rows = 0
        self.names: tuple[str, ...] = ()
        self.columns: dict[str, _ColumnProfiler] = {}
        self.repeated = RepeatedRows()
        self.time = TimeProfiler()
        self.label_held = ""
        self.positions = sampled_positions(rows, seed=seed)
        self.sample: dict[str, list[Numbers | pd.Series]] = {}

    def add(self, batch: Batch) -> None:
        """Take more rows. Nothing that the columns hold raises."""
        names = [
            str(name) for name in (batch.columns if isinstance(batch, pd.DataFrame) else batch.schema.names)
        ]
        rows = len(batch) if isinstance(batch, pd.DataFrame) else batch.num_rows
        self.names = self.names or tuple(names)
        start, stop = np.searchsorted(self.positions, [self.rows, self.rows + rows])
        drawn = self.positions[start:stop] - self.rows
        self.rows += rows
        if not rows:
            return
        features = {column.name: column for column in self.schema.features}
        hasher = RowHasher(rows)
        # By name, so that the order of the columns is of no account.
        for name, position in sorted(zip(names, range(len(names)), strict=True)):
            values = BatchColumn(batch, position)
            hasher.add(values.words)
            if names.count(name) > 1:
                continue
            if name in features:
                profiler = self.columns.setdefault(name, _ColumnProfiler(features[name]))
                profiler.add(values)
            if name == self.schema.time_column:
                self.time.add(values.series)
            if name == self.schema.label_column:
                self.label_held = self.label_held or _held_beside_labels(values)
            if name in features or name == self.schema.time_column:
                parts = self.sample.setdefault(name, [])
                if len(drawn) or not parts:
                    parts.append(values.taken(drawn))
        self.repeated.add(hasher.finish())

    def finish(self) -> WindowProfile:
        """Return the profile of all rows taken."""
        sample = pd.DataFrame({name: _joined(parts) for name, parts in self.sample.items()})
        timed = self.schema.time_column is not None and self.names.count(self.schema.time_column) == 1
        return WindowProfile(
            rows=self.rows,
            names=self.names,
            columns={name: column.finish(sample[name]) for name, column in self.columns.items()},
            repeated_share=self.repeated.share,
            time=self.time.finish() if timed and self.rows else None,
            label_held=self.label_held,
            sample=sample,
        )


def _joined(parts: list[Numbers | pd.Series]) -> pd.Series:
    """Return the sampled rows of one column."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return pd.Series(np.concatenate(arrays))
    filled = [pd.Series(part) for part in parts if len(part)] or [pd.Series(parts[0])]
    return pd.concat(filled, ignore_index=True)


class _ColumnProfiler:
    """Gathers the facts about one feature."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.kind: ValueKind = "empty"
        self.held = ""
        self.missing = self.infinite = self.uncounted = 0
        self.low, self.high = np.inf, -np.inf
        self.categories: dict[str, int] = {}

    def add(self, values: BatchColumn) -> None:
        kind, numbers = values.kind, values.numbers
        if kind == "numeric" and numbers is None:
            try:
                numbers = float_values(values.series)
            except InvalidWindowError:
                kind = "unsupported"
        if kind == "empty":
            self.missing += len(values)
            return
        if kind != self.column.kind:
            self.held = self.held or values.described
        self.kind = kind if self.kind in {"empty", kind} else "unsupported"
        if kind == self.column.kind == "categorical":
            self._count(*values.factorised)
        elif kind == self.column.kind and numbers is not None:
            self._measure(numbers)

    def _measure(self, numbers: Numbers) -> None:
        low, high = numbers.min(), numbers.max()
        if not (np.isfinite(low) and np.isfinite(high)):  # a NaN spreads to both
            missing = int(np.isnan(numbers).sum())
            finite = numbers[np.isfinite(numbers)]
            self.missing += missing
            self.infinite += len(numbers) - missing - len(finite)
            if not len(finite):
                return
            low, high = finite.min(), finite.max()
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))

    def _count(self, codes: npt.NDArray[np.int64], texts: npt.NDArray[np.object_]) -> None:
        missing, *counts = np.bincount(codes + 1, minlength=len(texts) + 1).tolist()
        self.missing += missing
        for text, count in zip(texts.tolist(), counts, strict=True):
            if text in self.categories or len(self.categories) < CATEGORY_CAP:
                self.categories[text] = self.categories.get(text, 0) + count
            else:
                self.uncounted += count

    def finish(self, sample: pd.Series) -> ColumnProfile:
        known = self.low <= self.high
        return ColumnProfile(
            kind=self.kind,
            held=self.held,
            missing=self.missing,
            infinite=self.infinite,
            low=self.low if known else None,
            high=self.high if known else None,
            categories=MappingProxyType(self.categories),  # Prefect walks through dicts, item by item
            uncounted=self.uncounted,
            top_share=self._top_share(sample),
        )

    def _top_share(self, sample: pd.Series) -> float:
        if self.held or self.kind == "empty":
            return 1.0
        if self.kind == "categorical":
            return max(self.categories.values()) / (sum(self.categories.values()) + self.uncounted)
        share: float = pd.Series(float_values(sample)).value_counts(normalize=True).max()
        return share


def _held_beside_labels(values: BatchColumn) -> str:
    """Describe what a column holds that are no labels; empty where 0, 1 and missing values are all."""
    if values.kind == "empty":
        return ""
    if values.kind == "numeric":
        try:
            numbers = values.numbers if values.numbers is not None else float_values(values.series)
        except InvalidWindowError:
            return values.described
        if bool(np.isin(numbers[~np.isnan(numbers)], (0, 1)).all()):
            return ""
    return values.described
