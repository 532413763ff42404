"""Rows as sequences: stretches without a gap, and the sliding windows over them. NumPy and pandas alone.

A stretch is rows of one entity in the order of time, without a pause longer than the maximal gap. Rows may
arrive in any order: they are sorted by entity and time, rows of the same instant staying as they came. A
window is `length` rows in a row of one stretch, so it never crosses a gap or an entity's border.

A row's score is the mean over the windows that contain it. A stretch shorter than a window is scored as one
window whose front is filled with its first row; scores of that filling are dropped. It is not trained on.

Rows files of a training and samples in an artifact hold stretches as a column, `STRETCH`: rows that were
taken out leave gaps that the times alone would not show.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.encoding import Features
from training.errors import InvalidWindowError, TrainingFailedError
from training.types import FeatureSchema

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]
ScoreWindows = Callable[[Features], npt.NDArray[np.floating]]
"""From windows (windows, length, width) to a score per position (windows, length)."""

STRETCH = "floodmark_stretch"
"""Column of whole numbers, equal for rows of one stretch, which stand in the order of time."""
GAP_FACTOR = 5.0
"""Times the median step between two rows of an entity: a longer pause is a gap, unless one is configured."""
ROWS_PER_RUN = 65_536
"""Rows of the windows that are scored at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """How a model reads rows as sequences.

    Attributes:
        length: Rows of a window.
        max_gap_seconds: The longest pause within a stretch.
    """

    length: int
    max_gap_seconds: float

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Sequences":
        """Read back what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretches:
    """Stretch i of a frame is its rows `order[bounds[i] : bounds[i + 1]]`.

    Attributes:
        order: Positions of all rows, (rows,).
        bounds: Where each stretch begins in `order`, and the last one ends, (stretches + 1,).
    """

    order: Positions
    bounds: Positions


def context_columns(schema: FeatureSchema) -> list[str]:
    """Return the columns, beside the features, that tell stretches."""
    return [name for name in (schema.time_column, schema.entity_column) if name is not None]


def find_stretches(frame: pd.DataFrame, schema: FeatureSchema, max_gap_seconds: float) -> Stretches:
    """Find the stretches of a frame, by its column `STRETCH` where it has one, else by times and entities.

    Raises:
        InvalidWindowError: There is no time or entity column, or a row lacks its time or entity.
    """
    if STRETCH in frame:
        known = frame[STRETCH].to_numpy(np.int64)
        order = np.argsort(known, kind="stable")
        return Stretches(order=order, bounds=run_bounds(known[order]))
    times, entities = _times(frame, schema), _entities(frame, schema)
    order = np.lexsort((times, entities))
    late = np.diff(times[order], prepend=times[order][:1]) > max_gap_seconds * 1e6
    return Stretches(order=order, bounds=run_bounds(entities[order], np.cumsum(late)))


def learned_gap(frame: pd.DataFrame, schema: FeatureSchema) -> float:
    """Return `GAP_FACTOR` times the median step between successive instants of an entity, in seconds.

    Raises:
        InvalidWindowError: As `find_stretches`.
        TrainingFailedError: No entity has rows of two instants.
    """
    times, entities = _times(frame, schema), _entities(frame, schema)
    order = np.lexsort((times, entities))
    steps = np.diff(times[order])[np.diff(entities[order]) == 0]
    if not (steps > 0).any():
        raise TrainingFailedError(
            f"the time column {schema.time_column!r} holds a single instant per entity: there is no sequence",
            hint="Name the right time_column, or take a detector of single rows.",
        )
    return GAP_FACTOR * float(np.median(steps[steps > 0])) / 1e6


def run_bounds(*keys: npt.NDArray[np.integer]) -> Positions:
    """Return where runs begin in which every key (rows,) stays the same, and the last one ends."""
    rows = len(keys[0])
    changes = np.zeros(max(rows - 1, 0), dtype=bool)
    for key in keys:
        changes |= key[1:] != key[:-1]
    return np.concatenate([[0], np.flatnonzero(changes) + 1, [rows]] if rows else [[0]]).astype(np.int64)


def numbered(bounds: Positions) -> Positions:
    """Return the number of each row's run, (rows,)."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def in_stretches(frame: pd.DataFrame, found: Stretches) -> pd.DataFrame:
    """Return the rows in the order of their stretches, under a new index, with the column `STRETCH`."""
    return frame.iloc[found.order].reset_index(drop=True).assign(**{STRETCH: numbered(found.bounds)})


def keep_rows(frame: pd.DataFrame, kept: Mask) -> pd.DataFrame:
    """Return the rows of `kept` (rows,) under their index; where others stood between, a stretch ends.

    Of a frame without the column `STRETCH`, just the rows.
    """
    rows = frame.loc[kept]
    if STRETCH not in frame:
        return rows
    left_out = np.cumsum(~kept, dtype=np.int64)[kept]
    parts = run_bounds(frame[STRETCH].to_numpy(np.int64)[kept], left_out)
    return rows.assign(**{STRETCH: numbered(parts)})


def window_starts(bounds: Positions, length: int) -> Positions:
    """Return where the windows of `length` rows begin, (windows,); short stretches have none."""
    counts = np.maximum(np.diff(bounds) - length + 1, 0)
    return np.repeat(bounds[:-1] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def mean_scores(score: ScoreWindows, features: Features, stretches: Stretches, length: int) -> Scores:
    """Return the score of each row, (rows,), in the order of `features` (rows, width)."""
    ordered, bounds = features[stretches.order], stretches.bounds
    counts = np.maximum(np.diff(bounds) - length + 1, 1)  # a short stretch has one window, filled in front
    firsts = np.repeat(bounds[:-1], counts)
    ends = np.repeat(bounds[1:] + 1 - np.cumsum(counts), counts) + np.arange(counts.sum())
    sums, windows = np.zeros(len(features)), np.zeros(len(features))
    at_once = max(1, ROWS_PER_RUN // length)
    for start in range(0, len(ends), at_once):
        part = slice(start, start + at_once)
        places = ends[part, None] + np.arange(-length, 0)
        real = places >= firsts[part, None]
        places = np.maximum(places, firsts[part, None])
        scores = np.where(real, score(ordered[places]), 0.0)
        low, high = places[0, 0], places[-1, -1] + 1
        offsets = (places - low).ravel()
        sums[low:high] += np.bincount(offsets, scores.ravel(), high - low)
        windows[low:high] += np.bincount(offsets, real.ravel(), high - low)
    result = np.empty(len(features))
    result[stretches.order] = sums / windows
    return result


def replaced_in_context(
    frame: pd.DataFrame, replacements: pd.DataFrame, length: int
) -> tuple[pd.DataFrame, Positions]:
    """Put each replacement into its row's place in a copy of all that windows with this row hold.

    Args:
        frame: Rows with the column `STRETCH`, in order, under a unique index.
        replacements: Features, each row under the index of the row that it takes the place of.
        length: Rows of a window.

    Returns:
        The copies, each a stretch of its own, and where in them the replacements stand.
    """
    places = frame.index.get_indexer(replacements.index)
    bounds = run_bounds(frame[STRETCH].to_numpy(np.int64))
    stretch = np.searchsorted(bounds, places, side="right") - 1
    firsts = np.maximum(bounds[stretch], places - length + 1)
    sizes = np.minimum(bounds[stretch + 1], places + length) - firsts
    begun = np.cumsum(sizes) - sizes
    taken = np.repeat(firsts - begun, sizes) + np.arange(sizes.sum())
    copies = frame.iloc[taken].reset_index(drop=True)
    copies[STRETCH] = np.repeat(np.arange(len(places)), sizes)
    changed = begun + places - firsts
    for name in replacements:
        values = copies[name].to_numpy(copy=True)
        values[changed] = replacements[name].to_numpy()
        copies[name] = values
    return copies, changed


def _times(frame: pd.DataFrame, schema: FeatureSchema) -> npt.NDArray[np.int64]:
    """Return each row's time in microseconds since 1970."""
    values = _context(frame, schema.time_column, "time_column")
    if not pd.api.types.is_datetime64_any_dtype(values):
        texts = values.astype(object)
        values = pd.to_datetime(
            texts.where(~texts.map(pd.api.types.is_number)), format="ISO8601", errors="coerce", utc=True
        )
    if missing := int(values.isna().sum()):
        raise InvalidWindowError(
            f"{missing} of {len(values)} rows have no readable time in {schema.time_column!r}",
            hint="The model reads rows as sequences: each needs a timestamp or ISO 8601 text.",
        )
    since_epoch: Positions = values.dt.as_unit("us").to_numpy(dtype="datetime64[us]").astype(np.int64)
    return since_epoch


def _entities(frame: pd.DataFrame, schema: FeatureSchema) -> npt.NDArray[np.int64]:
    """Return a number per row, equal for rows of one entity."""
    if schema.entity_column is None:
        return np.zeros(len(frame), dtype=np.int64)
    codes, _ = pd.factorize(_context(frame, schema.entity_column, "entity_column"))
    if missing := int((codes < 0).sum()):
        raise InvalidWindowError(f"{missing} of {len(codes)} rows have no {schema.entity_column!r}")
    return codes.astype(np.int64)


def _context(frame: pd.DataFrame, name: str | None, setting: str) -> "pd.Series[Any]":
    if name is None or name not in frame:
        raise InvalidWindowError(
            f"the {setting} {name!r} is not among the columns {', '.join(map(repr, frame.columns))}",
            hint="The model reads rows as sequences and needs it to tell which rows follow each other.",
        )
    return frame[name]
