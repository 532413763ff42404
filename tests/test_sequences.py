"""Stretches, windows and scores of sequences: properties that hold for any rows."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import InvalidWindowError, TrainingFailedError
from training.sequence_files import read_block_sample, read_in_context
from training.sequences import (
    STRETCH,
    Stretches,
    find_stretches,
    in_stretches,
    keep_rows,
    learned_gap,
    mean_scores,
    numbered,
    replaced_in_context,
    run_bounds,
    window_starts,
)
from training.split import split_blocks
from training.types import Column, FeatureSchema
from training.window_feed import WindowFeed, WindowPlan

SCHEMA = FeatureSchema(
    features=(Column(name="x", kind="numeric"), Column(name="word", kind="categorical")),
    time_column="at",
    entity_column="pump",
)
GAP = 5.0
lengths = st.integers(min_value=1, max_value=6)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Rows of up to three pumps, their times distinct whole seconds, in any order."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.sampled_from("abc"), st.integers(-9, 9)),
            min_size=1,
            max_size=60,
            unique_by=lambda row: row[:2],
        )
    )
    at, pump, x = zip(*rows, strict=True)
    times = pd.Timestamp("2026-01-05", tz="UTC") + pd.to_timedelta(at, unit="s")
    return pd.DataFrame({"at": times, "pump": pump, "x": np.array(x, dtype=float), "word": "w"})


def window_means(windows: np.ndarray) -> np.ndarray:
    """Score every position of a window (windows, length, 1) by the window's mean and its own place."""
    length = windows.shape[1]
    scores: np.ndarray = windows.mean(axis=1) + np.arange(length) * windows[:, :1, 0]
    return scores


def scored(frame: pd.DataFrame, length: int) -> np.ndarray:
    found = find_stretches(frame, SCHEMA, GAP)
    return mean_scores(window_means, frame[["x"]].to_numpy(np.float32), found, length)


@given(frames())
def test_stretches_hold_every_row_once_and_cross_neither_gap_nor_entity(frame: pd.DataFrame) -> None:
    found = find_stretches(frame, SCHEMA, GAP)
    assert sorted(found.order) == list(range(len(frame)))
    ends = []
    for first, last in zip(found.bounds[:-1], found.bounds[1:], strict=True):
        rows = frame.iloc[found.order[first:last]]
        steps = rows["at"].diff().dropna().dt.total_seconds()
        assert len(set(rows["pump"])) == 1
        assert ((steps > 0) & (steps <= GAP)).all()
        ends.append((rows["pump"].iloc[0], rows["at"].iloc[0], rows["at"].iloc[-1]))
    for (pump, _, left), (next_pump, entered, _) in pairwise(ends):
        assert pump != next_pump or (entered - left).total_seconds() > GAP


@given(frames(), lengths)
def test_windows_lie_within_one_stretch_and_there_are_all_of_them(frame: pd.DataFrame, length: int) -> None:
    bounds = find_stretches(frame, SCHEMA, GAP).bounds
    stretch = numbered(bounds)
    starts = window_starts(bounds, length)
    whole = [
        start for start in range(len(frame) - length + 1) if len(set(stretch[start : start + length])) == 1
    ]
    assert starts.tolist() == whole


@given(frames(), lengths)
def test_a_score_is_the_mean_over_the_windows_that_contain_the_row(frame: pd.DataFrame, length: int) -> None:
    found = find_stretches(frame, SCHEMA, GAP)
    values = frame["x"].to_numpy(np.float32)[found.order]
    expected = np.empty(len(frame))
    for first, last in zip(found.bounds[:-1], found.bounds[1:], strict=True):
        missing = max(0, length - (last - first))
        filled = np.concatenate([np.repeat(values[first], missing), values[first:last]])
        windows = np.lib.stride_tricks.sliding_window_view(filled, length)
        scores = window_means(windows[:, :, None])
        for place in range(missing, len(filled)):
            of_row = [
                scores[window, place - window]
                for window in range(len(windows))
                if 0 <= place - window < length
            ]
            expected[found.order[first + place - missing]] = np.mean(of_row)
    result = scored(frame, length)
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@given(frames(), lengths, st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_the_rows(frame: pd.DataFrame, length: int, random) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - hypothesis
    order = list(range(len(frame)))
    random.shuffle(order)
    shuffled = scored(frame.iloc[order].reset_index(drop=True), length)
    np.testing.assert_allclose(shuffled, scored(frame, length)[order], rtol=1e-6, atol=1e-6)


@given(frames(), lengths, st.data())
def test_rows_that_are_taken_out_are_gaps(frame: pd.DataFrame, length: int, data: st.DataObject) -> None:
    ordered = in_stretches(frame, find_stretches(frame, SCHEMA, GAP))
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(frame), max_size=len(frame))))
    rows = keep_rows(ordered, kept)
    assert rows.index.tolist() == np.flatnonzero(kept).tolist()
    for _, stretch in rows.groupby(STRETCH):
        assert np.diff(stretch.index).tolist() == [1] * (len(stretch) - 1)  # nothing was left out between
        assert len(set(ordered.loc[stretch.index, STRETCH])) == 1
    starts = window_starts(run_bounds(rows[STRETCH].to_numpy()), length)
    whole = [
        start
        for start in window_starts(run_bounds(ordered[STRETCH].to_numpy()), length)
        if kept[start : start + length].all()
    ]
    assert len(starts) == len(whole)


@given(frames(), lengths)
def test_a_row_scores_in_its_context_as_among_all_rows(frame: pd.DataFrame, length: int) -> None:
    ordered = in_stretches(frame, find_stretches(frame, SCHEMA, GAP)).set_index(np.arange(len(frame)) + 100)
    copies, places = replaced_in_context(ordered, ordered[["x", "word"]].iloc[::-1], length)
    assert len(copies) <= len(frame) * (2 * length - 1)
    np.testing.assert_allclose(
        scored(copies, length)[places], scored(ordered, length)[::-1], rtol=1e-6, atol=1e-6
    )


def test_a_replacement_stands_in_its_place_and_nowhere_else() -> None:
    ordered = in_stretches(rows_of("a", range(10)), find_stretches(rows_of("a", range(10)), SCHEMA, GAP))
    changed = pd.DataFrame({"x": [99.0, 98.0], "word": [None, "v"]}, index=[3, 4])
    copies, places = replaced_in_context(ordered, changed, 3)
    assert copies["x"].tolist() == [1, 2, 99, 4, 5, 2, 3, 98, 5, 6]
    assert copies["word"].iloc[places].fillna("missing").tolist() == ["missing", "v"]
    assert copies.loc[places, "x"].tolist() == [99, 98]
    assert ordered["x"].tolist() == list(range(10))


@given(frames(), st.integers(1, 3), st.integers(0, 5))
def test_blocks_are_whole_stretches_of_time(frame: pd.DataFrame, length: int, seed: int) -> None:
    bounds = find_stretches(frame, SCHEMA, GAP).bounds
    try:
        part = split_blocks(bounds, length, seed)
    except TrainingFailedError as error:
        assert f"windows of {length} rows" in error.message or f"a window has {length} rows" in error.message  # noqa: PT017 - a property
        return
    assert set(part) == {0, 1, 2}
    assert len(part) == len(frame)
    runs = run_bounds(part, numbered(bounds))
    cuts = len(runs) - len(bounds)  # borders between parts within a stretch
    assert cuts <= len(frame) / length
    assert len(window_starts(runs[: len(runs)], length)) > 0


def test_shares_of_blocks_are_near_those_asked_for() -> None:
    part = split_blocks(np.array([0, 4_000, 4_010, 9_000]), 32, seed=1)
    assert np.bincount(part) / 9_000 == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert (part != split_blocks(np.array([0, 4_000, 4_010, 9_000]), 32, seed=2)).any()


def rows_of(pump: str, seconds: range | list[float]) -> pd.DataFrame:
    at = pd.Timestamp("2026-01-05", tz="UTC") + pd.to_timedelta(list(seconds), unit="s")
    return pd.DataFrame({"at": at, "pump": pump, "x": np.arange(len(at), dtype=float), "word": "w"})


def test_too_short_stretches_are_told_with_what_to_change() -> None:
    with pytest.raises(
        TrainingFailedError, match=r"window has 50 rows.* longest of \d+ stretches.* has 20"
    ) as caught:
        split_blocks(np.array([0, 20, 40, 60]), 50, seed=0)
    assert "max_gap_seconds" in caught.value.hint
    with pytest.raises(TrainingFailedError, match="cannot be split into 3 parts"):
        split_blocks(np.array([0, 60]), 50, seed=0)


def test_the_gap_is_learned_from_the_median_step() -> None:
    frame = pd.concat([rows_of("a", [0, 2, 4, 6, 100]), rows_of("b", [1, 3, 5])])
    assert learned_gap(frame, SCHEMA) == 10
    with pytest.raises(TrainingFailedError, match="single instant"):
        learned_gap(rows_of("a", [1, 1]), SCHEMA)


def test_times_may_be_text_and_in_several_offsets() -> None:
    frame = rows_of("a", range(3)).assign(
        at=["2026-01-05T00:00:01Z", "2026-01-05T01:00:00+01:00", "2026-01-05 00:00:02"]
    )
    assert find_stretches(frame, SCHEMA, GAP).order.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            rows_of("a", range(3)).assign(at=["2026-01-05", "2026-01-06", ""]),
            "1 of 3 rows have no readable time",
        ),
        (rows_of("a", range(3)).assign(at=[1.0, 2.0, 3.0]), "3 of 3 rows have no readable time"),
        (rows_of("a", range(3)).drop(columns="at"), "time_column 'at' is not among"),
        (rows_of("a", range(3)).drop(columns="pump"), "entity_column 'pump' is not among"),
        (rows_of("a", range(3)).assign(pump=pd.Series(["a", None, "a"])), "1 of 3 rows have no 'pump'"),
    ],
    ids=["missing", "numbers", "no-times", "no-entities", "no-entity"],
)
def test_rows_that_cannot_be_ordered_are_refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(InvalidWindowError, match=message):
        find_stretches(frame, SCHEMA, GAP)


def test_without_an_entity_column_all_rows_are_one_machine() -> None:
    alone = replace(SCHEMA, entity_column=None)
    frame = pd.concat([rows_of("a", [0, 2]), rows_of("b", [1, 3])], ignore_index=True)
    assert find_stretches(frame, alone, GAP).order.tolist() == [0, 2, 1, 3]


def test_no_row_has_no_score() -> None:
    nothing = Stretches(order=np.empty(0, dtype=np.int64), bounds=np.array([0]))
    assert mean_scores(window_means, np.empty((0, 1), dtype=np.float32), nothing, 4).shape == (0,)


@given(st.lists(st.integers(40, 400), min_size=1, max_size=4), st.integers(4, 12), st.integers(1, 4))
def test_ranks_together_have_every_window_once_and_the_steps_of_one(
    sizes: list[int], length: int, ranks: int
) -> None:
    stretch = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.arange(len(stretch), dtype=np.float32)[:, None]

    def feed(rank: int, size: int) -> WindowFeed:
        plan = WindowPlan.of(stretch, length=length, validation_share=0.2, seed=1, rank=rank, size=size)
        return WindowFeed(rows[slice(*plan.rows)], plan, seed=1)

    def steps(one: WindowFeed) -> list[list[float]]:
        (chunk,) = one.chunks(epoch=2, batch_rows=32)
        return [chunk.rows[chunk.order[first:last], 0].tolist() for first, last in pairwise(chunk.bounds)]

    alone, together = feed(0, 1), [feed(rank, ranks) for rank in range(ranks)]
    assert len(steps(alone)) == alone.steps(batch_rows=32)
    for expected, *parts in zip(steps(alone), *map(steps, together), strict=True):
        assert len(expected) <= 32
        assert sorted(expected) == sorted(start for part in parts for start in part)
    validation = np.concatenate([*alone.validation()])
    trained = {start + place for step in steps(alone) for start in step for place in range(length)}
    if alone.training_rows < alone.rows:
        assert not trained & set(validation.ravel())  # no row of one is within a window of the other
    else:  # too few rows to hold any out
        np.testing.assert_array_equal(validation, np.concatenate([*alone.parts()]))
    own = np.concatenate([part for one in together for part in one.validation()])
    np.testing.assert_array_equal(own, validation)
    whole = np.concatenate([np.concatenate([*one.parts()]) for one in together])
    np.testing.assert_array_equal(whole, np.concatenate([*alone.parts()]))


def test_rows_in_shreds_still_hold_windows_out() -> None:
    stretch = np.repeat(np.arange(88), [5] * 76 + [30] * 12)  # most stretches are too short for a window
    for seed in range(20):
        plan = WindowPlan.of(stretch, length=16, validation_share=0.1, seed=seed, rank=0, size=2)
        assert 15 <= plan.held_out.sum() <= 30


def test_fewer_windows_than_ranks_are_refused() -> None:
    with pytest.raises(TrainingFailedError, match=r"hold \d+ validation windows of 4 rows, for 40 ranks"):
        WindowPlan.of(np.zeros(200, np.int64), length=4, validation_share=0.1, seed=0, rank=0, size=40)


def test_a_short_series_is_trained_on_whole_and_judged_by_what_it_was_trained_on() -> None:
    rows = np.arange(400, dtype=np.float32)[:, None]
    plan = WindowPlan.of(np.zeros(400, np.int64), length=32, validation_share=0.1, seed=0, rank=0, size=1)
    feed = WindowFeed(rows, plan, seed=0)
    every = np.arange(400 - 32 + 1)
    (chunk,) = feed.chunks(epoch=1, batch_rows=32)
    assert sorted(chunk.order) == every.tolist()
    np.testing.assert_array_equal(np.concatenate([*feed.validation()])[:, 0, 0], every)
    assert (feed.rows, feed.training_rows, feed.validation_rows) == (369, 369, 369)


def test_shares_of_a_file_in_context_score_as_the_whole(tmp_path: Path) -> None:
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=200), STRETCH: np.arange(200) // 60})
    rows.to_parquet(tmp_path / "rows.parquet", row_group_size=30)
    whole = scored(rows, 7)
    for size in (1, 2, 3):
        parts = [read_in_context(tmp_path / "rows.parquet", ["x"], 7, rank, size) for rank in range(size)]
        shares = [scored(frame, 7)[own] for frame, own in parts]
        np.testing.assert_allclose(np.concatenate(shares), whole, rtol=1e-6)
    sample = read_block_sample(tmp_path / "rows.parquet", 80, 4, seed=1)
    assert 80 <= len(sample) < 140
    for _, stretch in sample.groupby(STRETCH):
        assert np.isin(stretch["x"], rows["x"]).all()
        places = np.flatnonzero(rows["x"].isin(stretch["x"]))
        assert (np.diff(places) == 1).all()
