"""From raw columns to the matrix that a network reads, with NumPy and pandas alone.

Numeric columns: what is missing becomes the median, columns with heavy tails are compressed by asinh around
the median, every column is standardised and clipped, and an indicator says what was missing. Categorical
columns: centred one-hot over the levels seen in training, with one more slot for all that was not.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.encoding import (
    FLOAT32_MAX,
    Array,
    CategoricalColumn,
    Encoder,
    Features,
    Levels,
    NumericColumn,
    compress,
)
from training.errors import InvalidWindowError, TrainingFailedError
from training.types import FeatureSchema

Gather = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Concatenates one array per rank, in the order of the ranks; the identity where there is one rank."""

HEAVY_TAIL = 10.0
"""A column whose standard deviation exceeds its robust one (IQR / 1.349) by this factor is compressed."""
CONSTANT = 0.1
"""Of a constant column's value: the change that counts as one deviation; one unit where the value is zero."""
IQR_OF_NORMAL = 1.349
"""The interquartile range of a standard normal distribution."""
MAX_LEVELS = 64
"""Of a categorical column; the rarer levels share the slot of the unseen ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """Raw frame -> float32 features (rows, width), the same wherever it is loaded."""

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    encoder: Encoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", Encoder.of(self.numeric, self.categorical))

    @property
    def width(self) -> int:
        """The number of features of one row."""
        return self.encoder.width

    def transform(self, frame: pd.DataFrame) -> Features:
        """Encode the rows of `frame`; columns are found by name, others are ignored.

        Raises:
            InvalidWindowError: A column is missing, or a numeric one holds something that is no number.
        """
        _require(frame, [*self.encoder.names, *(column.name for column in self.categorical)])
        return self.encoder.encode(
            len(frame), lambda name: _numbers(frame[name]), lambda name: _levels(frame[name])
        )

    def to_json(self) -> str:
        """Return everything `from_json` needs, floats to the last digit."""
        columns = {
            "numeric": [asdict(column) for column in self.numeric],
            "categorical": [asdict(column) for column in self.categorical],
        }
        return json.dumps(columns, indent=1) + "\n"

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
            _fit_numeric(name, np.sort(gather(_bounded(_numbers(shard[name])))))
            for name in schema.names("numeric")
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
    compressed = column if tail is None else compress(column, float(median), tail)
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


def _numbers(series: "pd.Series[Any]") -> Array:
    """Return a numeric column as float64, missing values as NaN; it may share memory with the column."""
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_complex_dtype(series):
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
    present = series.dropna()
    wrong = next((value for value in present if not isinstance(value, (Real, Decimal))), None)
    if wrong is not None:
        raise InvalidWindowError(
            f"the numeric column {series.name!r} holds {wrong!r}",
            hint="Only numbers and missing values are allowed in it; "
            "correct the data, or declare the column categorical in the schema.",
        )
    try:
        return _numbers(series.astype("Float64"))
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidWindowError(f"the numeric column {series.name!r} is not all numbers: {error}") from error


def _bounded(values: Array) -> Array:
    """Return a copy without finite values beyond those of float32, whose squares are finite in float64."""
    return np.where(np.isfinite(values), np.clip(values, -FLOAT32_MAX, FLOAT32_MAX), values)


def _levels(series: "pd.Series[Any]") -> Levels:
    """Return a code per row and the level of each code: text, or None for what is missing."""
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
