"""From raw columns to the matrix that a network reads, with NumPy and pandas alone.

Numeric columns: what is missing becomes the median, columns with heavy tails are compressed by asinh around
the median, every column is standardised and clipped, and an indicator says what was missing. Categorical
columns: centred one-hot over the levels seen in training, with one more slot for all that was not.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.errors import InvalidWindowError, TrainingFailedError
from training.types import FeatureSchema

Array = npt.NDArray[np.float64]
Levels = tuple[npt.NDArray[np.intp], Sequence[str | None]]
"""A code per row, and the level of each code: text, or None for what is missing."""
Gather = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Concatenates one array per rank, in the order of the ranks; the identity where there is one rank."""

CLIP = 10.0
"""In standard deviations: what lies further out is abnormal already and must not drown the other columns."""
HEAVY_TAIL = 10.0
"""A column whose standard deviation exceeds its robust one (IQR / 1.349) by this factor is compressed."""
CONSTANT = 0.1
"""Of a constant column's value: the change that counts as one deviation; one unit where the value is zero."""
IQR_OF_NORMAL = 1.349
"""The interquartile range of a standard normal distribution."""
FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_LEVELS = 64
"""Of a categorical column; the rarer levels share the slot of the unseen ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericColumn:
    """`tail` is the robust scale of a heavy-tailed column and None for the others."""

    name: str
    median: float
    tail: float | None
    mean: float
    deviation: float
    missing_share: float

    @property
    def width(self) -> int:
        """Two with a missing-indicator, which exists only where training saw missing values."""
        return 2 if self.missing_share > 0 else 1

    def encode(self, values: Array) -> Iterator[Array]:
        """Yield the features of this column's `values` (rows,), each (rows,).

        A missing value counts as the median where training has seen missing ones, and otherwise as far
        out as a value can be: a row must not look normal for want of its values.
        """
        missing = ~np.isfinite(values)
        values = np.where(missing, self.median, values)
        centred = (_compress(values, self.median, self.tail) - self.mean) / self.deviation
        centred = np.clip(centred, -CLIP, CLIP)
        if not self.missing_share > 0:
            centred[missing] = CLIP
        yield centred
        if self.missing_share > 0:
            yield missing - self.missing_share


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalColumn:
    """The levels of training, most frequent first (None is "missing"), and the share of rows of each."""

    name: str
    levels: tuple[str | None, ...]
    shares: tuple[float, ...]

    @property
    def width(self) -> int:
        """One feature a level and one for everything else."""
        return len(self.levels) + 1

    def encode(self, levels: Levels) -> Iterator[Array]:
        """Yield the features of this column, each (rows,)."""
        codes, values = levels
        position = {level: index for index, level in enumerate(self.levels)}
        slot = np.array([position.get(value, len(self.levels)) for value in values], dtype=np.intp)[codes]
        for index, share in enumerate((*self.shares, 1.0 - sum(self.shares))):
            yield (slot == index) - share


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """Raw frame -> float32 features (rows, width), the same wherever it is loaded."""

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]

    @property
    def width(self) -> int:
        """The number of features of one row."""
        return sum(column.width for column in self._columns)

    @property
    def _columns(self) -> tuple[NumericColumn | CategoricalColumn, ...]:
        return (*self.numeric, *self.categorical)

    def transform(self, frame: pd.DataFrame) -> npt.NDArray[np.float32]:
        """Encode the rows of `frame`; columns are found by name, others are ignored.

        Raises:
            InvalidWindowError: A column is missing, or a numeric one holds something that is no number.
        """
        _require(frame, [column.name for column in self._columns])
        return self.encode(len(frame), lambda name: _numbers(frame[name]), lambda name: _levels(frame[name]))

    def encode(
        self, rows: int, numbers: Callable[[str], Array], levels: Callable[[str], Levels]
    ) -> npt.NDArray[np.float32]:
        """Encode columns that are asked for by name, one after the other.

        `numbers` returns `bounded` values (rows,), NaN for what is missing, and `levels` codes (rows,).
        """
        # Column by column into a column-major matrix: each write is contiguous.
        features = np.empty((rows, self.width), dtype=np.float32, order="F")
        encoded = chain(
            (feature for column in self.numeric for feature in column.encode(numbers(column.name))),
            (feature for column in self.categorical for feature in column.encode(levels(column.name))),
        )
        for index, feature in enumerate(encoded):
            features[:, index] = feature
        return np.ascontiguousarray(features)

    def to_json(self) -> str:
        """Return everything `from_json` needs, floats to the last digit."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Preprocessing":
        """Read back what `to_json` wrote."""
        fields = json.loads(text)
        return cls(
            numeric=tuple(NumericColumn(**column) for column in fields["numeric"]),
            categorical=tuple(
                CategoricalColumn(
                    name=column["name"], levels=tuple(column["levels"]), shares=tuple(column["shares"])
                )
                for column in fields["categorical"]
            ),
        )


def fit_preprocessing(schema: FeatureSchema, shard: pd.DataFrame, gather: Gather) -> Preprocessing:
    """Fit on the rows of all ranks, of which `shard` is this rank's part.

    Every statistic is taken over the gathered column, one column at a time, so the result is exactly the one
    of a single rank; the memory is one column of all ranks. The columns are sorted first, which makes sums
    independent of how the rows are dealt out.

    Raises:
        InvalidWindowError: A column is missing, or a numeric one holds something that is no number.
        TrainingFailedError: No rank has a row.
    """
    _require(shard, schema.names())
    if not gather(np.array([len(shard)])).sum():
        raise TrainingFailedError("there is no training row", hint="Train on at least one window with rows.")
    return Preprocessing(
        numeric=tuple(
            _fit_numeric(name, np.sort(gather(_numbers(shard[name])))) for name in schema.names("numeric")
        ),
        categorical=tuple(
            _fit_categorical(name, _counts(shard[name], gather)) for name in schema.names("categorical")
        ),
    )


def _fit_numeric(name: str, column: Array) -> NumericColumn:
    missing = ~np.isfinite(column)
    present = column[~missing]
    if not present.size:
        return NumericColumn(name=name, median=0.0, tail=None, mean=0.0, deviation=1.0, missing_share=1.0)
    lower, median, upper = np.percentile(present, [25, 50, 75])
    column[missing] = median
    robust = (upper - lower) / IQR_OF_NORMAL
    tail = float(robust) if 0 < robust < column.std() / HEAVY_TAIL else None
    compressed = _compress(column, float(median), tail)
    mean, deviation = float(compressed.mean()), float(compressed.std())
    constant = not deviation > 1e-9 * float(np.abs(compressed).max())
    return NumericColumn(
        name=name,
        median=float(median),
        tail=tail,
        mean=mean,
        deviation=(CONSTANT * abs(mean) or 1.0) if constant else deviation,
        missing_share=float(missing.mean()),
    )


def _fit_categorical(name: str, counts: Counter[str | None]) -> CategoricalColumn:
    # Ties go by name, so that the order never depends on the order of the rows.
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0] is not None, item[0] or ""))
    kept = ordered[:MAX_LEVELS]
    return CategoricalColumn(
        name=name,
        levels=tuple(level for level, _ in kept),
        shares=tuple(count / counts.total() for _, count in kept),
    )


def _counts(series: "pd.Series[Any]", gather: Gather) -> Counter[str | None]:
    """Count the levels over all ranks; they travel as lines of JSON, because only arrays are gathered."""
    codes, values = _levels(series)
    own = list(zip(values, np.bincount(codes, minlength=len(values)).tolist(), strict=True))
    line = json.dumps(own).encode() + b"\n"
    counts: Counter[str | None] = Counter()
    for gathered in gather(np.frombuffer(line, dtype=np.uint8)).tobytes().splitlines():
        for value, count in json.loads(gathered):
            counts[value] += count
    return counts


def _compress(values: Array, median: float, tail: float | None) -> Array:
    return values if tail is None else np.arcsinh((values - median) / tail)


def _numbers(series: "pd.Series[Any]") -> Array:
    """Return a fresh float64 copy of a numeric column, missing values as NaN."""
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_complex_dtype(series):
        return _floats(series)
    present = series.dropna()
    wrong = next((value for value in present if not isinstance(value, (Real, Decimal))), None)
    if wrong is not None:
        raise InvalidWindowError(
            f"the numeric column {series.name!r} holds {wrong!r}",
            hint="Only numbers and missing values are allowed in it; "
            "correct the data, or declare the column categorical in the schema.",
        )
    try:
        return _floats(series.astype("Float64"))
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidWindowError(f"the numeric column {series.name!r} is not all numbers: {error}") from error


def _floats(series: "pd.Series[Any]") -> Array:
    return bounded(
        np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan, copy=True), dtype=np.float64)
    )


def bounded(values: Array) -> Array:
    """Clip finite `values` in place to the range of float32, where squared deviations stay finite."""
    return np.clip(values, -FLOAT32_MAX, FLOAT32_MAX, out=values, where=np.isfinite(values))


def _levels(series: "pd.Series[Any]") -> Levels:
    try:
        codes, values = pd.factorize(series, use_na_sentinel=False)
    except TypeError as error:
        raise InvalidWindowError(f"the column {series.name!r} is not all text: {error}") from error
    return codes, [_level(value) for value in values]


def _level(value: Any) -> str | None:  # noqa: ANN401 - a cell of a data frame
    if pd.isna(value):
        return None
    # A column of whole numbers turns to floats as soon as one is missing: 1.0 and 1 are the same level.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _require(frame: pd.DataFrame, names: list[str]) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InvalidWindowError(
            f"columns are missing: {', '.join(map(repr, missing))}",
            hint=f"The data has {', '.join(map(repr, frame.columns))}; names must match the schema's.",
        )
