"""A profile is the same however the rows arrive, and its memory does not grow with them."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.batch_column import Batch
from monitoring.distances import ROW_CAP, capped_sample
from monitoring.event_times import TimeProfiler
from monitoring.profile import CATEGORY_CAP, Profiler, WindowProfile, profile_frame
from monitoring.row_hashes import RepeatedRows, RowHasher, number_words
from test_quality import SCHEMA, sound
from training.types import Column, FeatureSchema


def streamed(batches: list[Batch], rows: int, schema: FeatureSchema = SCHEMA) -> WindowProfile:
    profiler = Profiler(schema, rows=rows, seed=7)
    for batch in batches:
        profiler.add(batch)
    return profiler.finish()


def facts(profile: WindowProfile) -> dict[str, Any]:
    names = ("rows", "names", "columns", "time", "label_held")
    return {name: getattr(profile, name) for name in names} | {"repeated": round(profile.repeated_share, 9)}


def spoiled(rows: int = 500) -> pd.DataFrame:
    frame = sound(rows).sample(frac=1, random_state=1, ignore_index=True)
    frame.loc[3:40, "x"] = np.nan
    frame.loc[41:43, "x"] = [np.inf, -np.inf, 1e9]
    frame.loc[5:60, "word"] = None
    frame.loc[200:300] = frame.loc[0:100].to_numpy()
    return frame


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 500), max_size=6))
def test_batches_of_either_kind_give_the_profile_of_the_whole(cuts: list[int]) -> None:
    frame = spoiled().astype({"count": np.int32, "void": np.float32, "label": np.int64})
    edges = sorted({0, *cuts, len(frame)})
    pieces = [frame.iloc[start:stop] for start, stop in pairwise(edges)]
    whole = profile_frame(frame, SCHEMA, seed=7)
    assert whole.repeated_share > 0.1
    arrow = [pa.RecordBatch.from_pandas(piece, preserve_index=False) for piece in pieces]
    for batches in (pieces, arrow):
        profile = streamed(batches, len(frame))
        assert facts(profile) == facts(whole)
        pd.testing.assert_frame_equal(
            profile.sample[whole.sample.columns], whole.sample, check_dtype=False, check_column_type=False
        )


def test_the_sample_is_the_one_that_the_drift_check_draws() -> None:
    frame = pd.DataFrame({"x": np.arange(2.5 * ROW_CAP), "word": "a"})
    schema = FeatureSchema(features=(Column(name="x", kind="numeric"),))
    pieces = [frame.iloc[start : start + 999] for start in range(0, len(frame), 999)]
    profile = streamed(pieces, len(frame), schema)
    assert len(profile.sample) == ROW_CAP
    np.testing.assert_array_equal(profile.sample["x"], capped_sample(frame, seed=7)["x"])


@pytest.mark.parametrize(
    ("column", "kind", "held"),
    [
        (pa.array([1, None, 3]), "numeric", ""),
        (pa.array([True, None, False]), "numeric", ""),
        (pa.array([Decimal(1), Decimal("2.50"), None]), "numeric", ""),
        (pa.array(["1", None, "2"]).dictionary_encode(), "categorical", ""),
        (pa.array([None, None, None], pa.null()), "empty", ""),
        (pa.array([b"\xff", b"a", b"b"]), "unsupported", "xff"),
        (pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()), "unsupported", "xff"),
        (pa.array([[1], [2], None]), "unsupported", "1"),
        (pa.array([1, 2, 3], pa.timestamp("us")), "timestamps", "1970"),
    ],
)
def test_arrow_types(column: pa.Array, kind: str, held: str) -> None:
    expected = "categorical" if kind == "categorical" else "numeric"
    schema = FeatureSchema(features=(Column(name="x", kind=expected),))  # type: ignore[arg-type] # a literal
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    found = streamed([batch], batch.num_rows, schema).columns["x"]
    assert found.kind == kind
    assert held in found.held
    assert bool(held) == bool(found.held)


def test_a_column_that_changes_its_kind_between_batches_is_named() -> None:
    frame = sound()
    profile = streamed([frame, frame.assign(x="n/a")], 2 * len(frame))
    assert (profile.columns["x"].kind, profile.columns["x"].held) == ("unsupported", "text such as 'n/a'")
    assert profile.columns["count"].held == ""


def test_categories_beyond_the_cap_are_counted_together() -> None:
    words = [f"word {number}" for number in range(CATEGORY_CAP + 500)]
    frame = pd.DataFrame({"word": pd.Series([*words, *words[:10]], dtype=object)})
    schema = FeatureSchema(features=(Column(name="word", kind="categorical"),))
    column = profile_frame(frame, schema).columns["word"]
    assert (len(column.categories), column.uncounted) == (CATEGORY_CAP, 500)
    assert column.categories["word 0"] == 2


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_repeated_rows_are_estimated_in_bounded_memory(share: float) -> None:
    rows = 100_000
    generator = np.random.default_rng(0)
    distinct = round(rows * (1 - share))
    values = np.append(np.arange(distinct), generator.integers(0, distinct, rows - distinct))
    generator.shuffle(values)
    repeated = RepeatedRows(cap=2_000)
    for part in np.array_split(values, 37):
        hasher = RowHasher(len(part))
        hasher.add(number_words(part.astype(np.float64)))
        hasher.add(number_words((part % 7).astype(np.float32)))
        repeated.add(hasher.finish())
    assert repeated.share == pytest.approx(share, abs=0.03)
    assert len(repeated.kept) <= 2_000


def test_rows_that_differ_in_one_round_number_have_different_hashes() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(20.0)] * 4), axis=-1).reshape(-1, 4)
    for kind in (np.float64, np.float32, np.int64, np.int8):
        hasher = RowHasher(len(grid))
        for column in grid.T:
            hasher.add(number_words(column.astype(kind)))
        assert len(np.unique(hasher.finish())) == len(grid)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), st.integers(1, 5))
def test_the_largest_gap_is_found_in_any_order(seconds: list[int], parts: int) -> None:
    profiler = TimeProfiler()
    for part in np.array_split(np.array(seconds), parts):
        profiler.add(pd.Series(pd.to_datetime(part, unit="s", utc=True)))
    profile = profiler.finish()
    assert profile.times is not None
    ordered = sorted(seconds)
    assert profile.times.earliest.timestamp() == ordered[0]
    assert profile.times.latest.timestamp() == ordered[-1]
    assert profile.times.largest_gap_seconds == max([0, *np.diff(ordered)])
