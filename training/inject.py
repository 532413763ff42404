"""Anomalies made from normal rows, so that a model can be judged without any label.

They are made in the raw feature space, from the newest normal rows, before any preprocessing: what
a model finds of them is found through everything that will serve. The kinds are the rows of one
table; each changes one row in place. Kinds after Steinbuss and Boehm, "Benchmarking unsupervised
outlier detection with realistic synthetic data", ACM TKDD 2021, and common sensor faults.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pandas as pd

from training.errors import ConfigurationError
from training.types import FeatureSchema

ATTEMPTS = 50
"""Draws of a source row and a change before giving up on one that differs from its source."""
IQR_OF_NORMAL = 1.349
"""The interquartile range of a standard normal distribution."""
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pool:
    """The source rows, numeric features beside categorical ones, and what is usual in them."""

    numeric: np.ndarray  # (rows, numeric features) float64
    categorical: np.ndarray  # (rows, categorical features) object
    low: np.ndarray  # (numeric features,), as are the three below
    high: np.ndarray
    scale: np.ndarray
    dead: np.ndarray  # what a dead sensor reads; NaN where that is a usual reading
    unseen: tuple[str, ...]  # for each categorical feature, a category that it does not hold
    movable: np.ndarray  # indices of the numeric features that vary, or of all where none does


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    numeric: np.ndarray  # (numeric features,) float64
    categorical: np.ndarray  # (categorical features,) object


def _spike(row: _Row, pool: _Pool, generator: np.random.Generator) -> None:
    """Push one to three features outside their column's range by 6 to 12 scales, or to an unseen category."""
    numeric = len(pool.movable)
    chosen = _choose(generator, numeric + len(row.categorical), 1 + int(generator.integers(3)))
    for feature in chosen:
        if feature >= numeric:
            row.categorical[feature - numeric] = pool.unseen[feature - numeric]
            continue
        column = pool.movable[feature]
        direction = _direction(pool, column, generator)
        edge = pool.high[column] if direction > 0 else pool.low[column]
        row.numeric[column] = edge + direction * generator.uniform(6, 12) * pool.scale[column]


def _shift(row: _Row, pool: _Pool, generator: np.random.Generator) -> None:
    """Move a third of the numeric features by 4 to 8 scales from where they are."""
    for feature in _choose(generator, len(pool.movable), ceil(len(pool.movable) / 3)):
        column = pool.movable[feature]
        start = row.numeric[column]
        start = pool.high[column] if np.isnan(start) else start
        move = generator.uniform(4, 8) * pool.scale[column]
        row.numeric[column] = start + _direction(pool, column, generator) * move


def _swap(row: _Row, pool: _Pool, generator: np.random.Generator) -> None:
    """Take half of the features each from some other row: usual values, an unusual combination."""
    numeric, categorical = len(row.numeric), len(row.categorical)
    for feature in _choose(generator, numeric + categorical, (numeric + categorical) // 2):
        donor = generator.integers(len(pool.numeric))
        if feature < numeric:
            row.numeric[feature] = pool.numeric[donor, feature]
        else:
            row.categorical[feature - numeric] = pool.categorical[donor, feature - numeric]


def _dropout(row: _Row, pool: _Pool, generator: np.random.Generator) -> None:
    """Let half of the features fail at once, at least two where there are two.

    Numeric ones read as a dead sensor does: zero, or the bottom of the column where zero is a usual
    reading. Categorical ones go missing. Features whose usual reading is the dead one, as counts that are
    mostly zero, would not show it: they fail only where there are not two others, and then go missing.
    """
    numeric, total = len(row.numeric), len(row.numeric) + len(row.categorical)
    showing = np.concatenate((np.flatnonzero(~np.isnan(pool.dead)), np.arange(numeric, total)))
    candidates = showing if len(showing) > 1 else np.arange(total)
    for feature in candidates[_choose(generator, len(candidates), max(2, len(candidates) // 2))]:
        if feature < numeric:
            row.numeric[feature] = pool.dead[feature]
        else:
            row.categorical[feature - numeric] = None


INJECTIONS: dict[str, Callable[[_Row, _Pool, np.random.Generator], None]] = {
    "spike": _spike,
    "shift": _shift,
    "swap": _swap,
    "dropout": _dropout,
}


def inject_anomalies(
    rows: pd.DataFrame, schema: FeatureSchema, kinds: Sequence[str], seed: int, count: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """Make `count` anomalies from normal rows, the kinds in turn.

    Every anomaly differs from the row it was made of. A kind that the schema has no room for is left
    out: `shift` without numeric features, `swap` with a single feature. One that changes nothing, as
    `swap` among rows that are all alike, gives way to `spike`; the returned kinds say so.

    Args:
        rows: Raw normal rows, at least one, with all features of the schema.
        schema: Numeric features hold numbers or missing values, infinite counting as missing;
            categorical ones hold strings or missing values.
        kinds: Names out of `INJECTIONS`.
        seed: Of the choice of rows, features and values; the same seed makes the same anomalies.
        count: Anomalies to make, at least one.

    Returns:
        The features alone, in the schema's order (numeric ones float64, categorical ones objects with
        None where missing), each row under the index of the one it was made of; and an array of shape
        (count,) of the kinds' names.

    Raises:
        ConfigurationError: No kind fits the features.
        ValueError: No rows, an unknown kind, or `count` below one.
    """
    pool = _pool(rows, schema)
    usable = _usable(kinds, pool)
    if count < 1:
        raise ValueError(f"count is {count}; at least one anomaly must be asked for")
    generator = np.random.default_rng(seed)
    made = [_make(usable[position % len(usable)], pool, generator) for position in range(count)]
    columns = {
        name: np.array([row.numeric[place] for _, _, row in made])
        for place, name in enumerate(schema.names("numeric"))
    } | {
        name: pd.Series([row.categorical[place] for _, _, row in made], dtype=object)
        for place, name in enumerate(schema.names("categorical"))
    }
    sources = rows.index[[source for _, source, _ in made]]
    return pd.DataFrame(columns)[schema.names()].set_index(sources), np.array([kind for kind, _, _ in made])


def _make(kind: str, pool: _Pool, generator: np.random.Generator) -> tuple[str, int, _Row]:
    """Draw rows until the change shows; where it never does, every row being alike, `spike` always will."""
    for name in (kind, "spike"):
        for _ in range(ATTEMPTS):
            source = int(generator.integers(len(pool.numeric)))
            row = _Row(numeric=pool.numeric[source].copy(), categorical=pool.categorical[source].copy())
            INJECTIONS[name](row, pool, generator)
            same_numbers = np.array_equal(row.numeric, pool.numeric[source], equal_nan=True)
            if not (same_numbers and list(row.categorical) == list(pool.categorical[source])):
                return name, source, row
    raise ValueError(
        f"neither {kind} nor spike changes any of {len(pool.numeric)} rows of {len(pool.low)} "
        "numeric features: their values differ by less than float64 resolves"
    )


def _pool(rows: pd.DataFrame, schema: FeatureSchema) -> _Pool:
    if rows.empty:
        raise ValueError(f"{len(rows)} rows with {rows.shape[1]} columns: nothing to make anomalies from")
    numeric = rows[schema.names("numeric")].to_numpy(dtype=np.float64, na_value=np.nan)
    # As in preprocessing: infinite is missing, and float32 is the widest range.
    numeric = np.clip(np.where(np.isfinite(numeric), numeric, np.nan), -FLOAT32_MAX, FLOAT32_MAX)
    categories = rows[schema.names("categorical")].astype(object)
    # A column without any reading is taken as constantly zero.
    readings = np.where(np.isnan(numeric).all(axis=0), 0.0, numeric)
    quantiles = np.nanquantile(readings, (0, 0.25, 0.5, 0.75, 1), axis=0)
    low, first, middle, third, high = quantiles.reshape(5, numeric.shape[1])  # of no columns it is flat
    spread = np.maximum((third - first) / IQR_OF_NORMAL, np.nanstd(readings, axis=0))
    dead = np.where((first <= 0) & (third >= 0), low, 0.0)
    varying = np.flatnonzero(high > low)
    categorical = categories.where(categories.notna(), None).to_numpy(dtype=object)
    return _Pool(
        numeric=numeric,
        categorical=categorical,
        low=low,
        high=high,
        scale=np.where(spread > 0, spread, np.maximum(1, np.abs(middle))),
        dead=np.where((dead < first) | (dead > third), dead, np.nan),
        unseen=tuple(_unseen(column) for column in categorical.T),
        movable=varying if len(varying) else np.arange(len(low)),
    )


def _usable(kinds: Sequence[str], pool: _Pool) -> list[str]:
    unknown = [kind for kind in kinds if kind not in INJECTIONS]
    if unknown:
        raise ValueError(f"unknown kinds {unknown}; the kinds are {', '.join(INJECTIONS)}")
    numeric, categorical = pool.numeric.shape[1], pool.categorical.shape[1]
    room = {"shift": numeric > 0, "swap": numeric + categorical > 1}
    usable = [kind for kind in kinds if room.get(kind, numeric + categorical > 0)]
    if not usable:
        raise ConfigurationError(
            f"no kind of {list(kinds)} fits {numeric} numeric, {categorical} categorical features",
            hint="name others in gates.injected_kinds and supervision.synthetic",
        )
    return usable


def _choose(generator: np.random.Generator, features: int, count: int) -> np.ndarray:
    return generator.choice(features, size=min(count, features), replace=False)


def _direction(pool: _Pool, column: int, generator: np.random.Generator) -> int:
    """Up or down, but only up in a column that was never negative: counts and sizes stay possible."""
    return 1 if pool.low[column] >= 0 else int(generator.choice((-1, 1)))


def _unseen(column: np.ndarray) -> str:
    seen, name = set(column), "unseen-category"
    while name in seen:
        name += "-"
    return name
