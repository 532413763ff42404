"""Injected anomalies differ from their sources, are the same each time, and are what their kind says."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.errors import ConfigurationError
from training.inject import INJECTIONS, inject_anomalies
from training.types import Column, FeatureSchema

KINDS = tuple(INJECTIONS)


def _schema(**kinds: str) -> FeatureSchema:
    """Features by name; whatever is not numeric is categorical."""
    return FeatureSchema(
        features=tuple(
            Column(name=name, kind="numeric" if kind == "numeric" else "categorical")
            for name, kind in kinds.items()
        )
    )


MIXED = _schema(first="numeric", colour="categorical", second="numeric", third="numeric", shape="categorical")


def _mixed(rows: int = 200) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    level = generator.normal(50, 5, size=rows)
    return pd.DataFrame(
        {
            "when": pd.date_range("2026-01-01", periods=rows, tz="UTC"),
            "shape": generator.choice(["round", "square"], size=rows),
            "first": level,
            "second": 2 * level + generator.normal(size=rows),
            "third": generator.integers(10, 20, size=rows),
            "colour": generator.choice(["red", "green", "blue"], size=rows),
        }
    )


def _keys(frame: pd.DataFrame) -> set[tuple[object, ...]]:
    """Rows as tuples of text: NaN and None are then equal to themselves, whole floats to integers."""

    def text(value: object) -> str:
        return "missing" if pd.isna(value) else str(float(value) if isinstance(value, int) else value)  # type: ignore[call-overload]

    return {tuple(text(value) for value in row) for row in frame.astype(object).itertuples(index=False)}


def test_each_row_is_told_of_which_one_it_was_made() -> None:
    rows = _mixed()
    rows.index = pd.Index([f"row {place}" for place in range(len(rows))])
    frame, _ = inject_anomalies(rows, MIXED, ["spike"], 3, 20)
    kept = (frame.to_numpy() == rows.loc[frame.index, MIXED.names()].to_numpy()).sum(axis=1)
    assert (kept >= len(MIXED.features) - 3).all()
    assert (kept < len(MIXED.features)).all()


def test_it_returns_the_features_in_the_order_of_the_schema_and_the_kinds_in_turn() -> None:
    frame, kinds = inject_anomalies(_mixed(), MIXED, KINDS, 3, 42)
    assert list(frame.columns) == MIXED.names()
    assert len(frame) == 42
    assert list(kinds[:5]) == ["spike", "shift", "swap", "dropout", "spike"]
    assert len(kinds) == 42
    assert set(frame[MIXED.names("numeric")].dtypes) == {np.dtype(np.float64)}
    assert set(frame[MIXED.names("categorical")].dtypes) == {np.dtype(object)}


def test_the_same_seed_makes_the_same_anomalies_and_leaves_the_rows_alone() -> None:
    rows = _mixed()
    before = rows.copy()
    first, _ = inject_anomalies(rows, MIXED, KINDS, 3, 40)
    again, _ = inject_anomalies(rows, MIXED, KINDS, 3, 40)
    other, _ = inject_anomalies(rows, MIXED, KINDS, 4, 40)
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(rows, before)
    assert not first.equals(other)


def test_a_spike_leaves_the_range_or_the_known_categories() -> None:
    rows = _mixed()
    frame, _ = inject_anomalies(rows, MIXED, ["spike"], 0, 100)
    numeric, categorical = MIXED.names("numeric"), MIXED.names("categorical")
    deviation = rows[numeric].std(ddof=0)
    outside = (frame[numeric] > rows[numeric].max() + 5 * deviation) | (
        frame[numeric] < rows[numeric].min() - 5 * deviation
    )
    unseen = frame[categorical].apply(lambda column: ~column.isin(rows[column.name]))
    changed = outside.sum(axis=1) + unseen.sum(axis=1)
    assert changed.between(1, 3).all()
    assert unseen.to_numpy().any()


def test_an_unseen_category_is_unseen_even_where_its_name_is_taken() -> None:
    rows = pd.DataFrame({"name": ["unseen-category", "unseen-category-"]})
    frame, _ = inject_anomalies(rows, _schema(name="categorical"), ["spike"], 0, 3)
    assert set(frame["name"]) == {"unseen-category--"}


def test_a_shift_moves_a_third_of_the_numeric_features_and_nothing_else() -> None:
    schema = _schema(**dict.fromkeys("abcdefghi", "numeric"), kind="categorical")
    generator = np.random.default_rng(0)
    rows = pd.DataFrame(generator.normal(size=(1, 9)).repeat(50, axis=0), columns=list("abcdefghi"))
    rows += generator.normal(size=rows.shape) * 1e-3
    rows["kind"] = "only"
    frame, _ = inject_anomalies(rows, schema, ["shift"], 0, 20)
    scales = (frame[list("abcdefghi")] - rows[list("abcdefghi")].mean()).abs() / 1e-3
    assert ((scales > 3).sum(axis=1) == 3).sum() >= 15  # a normal row may lie beyond three by itself
    assert (scales.max(axis=1) < 20).all()
    assert (frame["kind"] == "only").all()


def test_a_swap_has_only_known_values_but_breaks_the_joint_structure() -> None:
    rows = _mixed()
    frame, _ = inject_anomalies(rows, MIXED, ["swap"], 0, 200)
    for name in MIXED.names():
        assert frame[name].isin(rows[name]).all()
    residual = (frame["second"] - 2 * frame["first"]).abs()
    assert (residual > 5).mean() > 0.25


def test_a_dropout_reads_as_a_dead_sensor_does() -> None:
    numeric, categorical = MIXED.names("numeric"), MIXED.names("categorical")
    frame, _ = inject_anomalies(_mixed(), MIXED, ["dropout"], 0, 100)
    assert ((frame[numeric] == 0).sum(axis=1) + frame[categorical].isna().sum(axis=1) == 2).all()

    schema = _schema(**dict.fromkeys("abcd", "numeric"))
    centred = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 4)), columns=list("abcd"))
    frame, _ = inject_anomalies(centred, schema, ["dropout"], 0, 20)
    assert ((frame == centred.min()).sum(axis=1) >= 2).all()

    mostly_zero = pd.DataFrame(0, index=range(50), columns=list("abcd"))
    mostly_zero.iloc[:5] = 3
    frame, _ = inject_anomalies(mostly_zero, schema, ["dropout"], 0, 20)
    assert (frame.isna().sum(axis=1) == 2).all()


def test_counts_stay_possible() -> None:
    rows = pd.DataFrame({"packets": np.random.default_rng(0).poisson(3, size=100)})
    frame, _ = inject_anomalies(rows, _schema(packets="numeric"), KINDS, 0, 60)
    assert (frame["packets"].dropna() >= 0).all()


@pytest.mark.parametrize("value", [0.0, 7.0, -1e-9, 1e30, np.nan, np.inf])
def test_constant_columns_still_give_anomalies(value: float) -> None:
    rows = pd.DataFrame({"first": [value] * 5, "second": [value] * 5})
    frame, kinds = inject_anomalies(rows, _schema(first="numeric", second="numeric"), KINDS, 0, 16)
    assert not _keys(frame) & _keys(rows)
    assert "swap" not in kinds  # nothing to swap: the kinds say what was made instead
    assert not np.isinf(frame.to_numpy()).any()


def test_kinds_without_room_are_left_out() -> None:
    rows = pd.DataFrame({"name": ["a", "b", None]})
    frame, kinds = inject_anomalies(rows, _schema(name="categorical"), KINDS, 0, 20)
    assert set(kinds) == {"spike", "dropout"}
    assert len(frame) == 20
    with pytest.raises(
        ConfigurationError, match=r"no kind of \['shift', 'swap'\] fits 0 numeric, 1 categorical"
    ):
        inject_anomalies(rows, _schema(name="categorical"), ["shift", "swap"], 0, 20)


def test_wrong_use_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to make anomalies from"):
        inject_anomalies(_mixed(0), MIXED, KINDS, 0, 20)
    with pytest.raises(ValueError, match=r"unknown kinds \['drift'\]; the kinds are spike, shift"):
        inject_anomalies(_mixed(), MIXED, ["spike", "drift"], 0, 20)
    with pytest.raises(ValueError, match="count is 0"):
        inject_anomalies(_mixed(), MIXED, KINDS, 0, 0)


NUMBERS = st.one_of(
    st.none(),
    st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-200]),
    st.floats(-1e38, 1e38),
    st.floats(allow_nan=True, allow_infinity=True),
)
NAMES = st.sampled_from(["a", "b", "", "unseen-category", None])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_never_the_source_row_whatever_the_columns_hold(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(["numeric", "categorical"]), min_size=1, max_size=4))
    count = data.draw(st.integers(1, 6))
    columns = {
        f"column{place}": data.draw(
            st.lists(NUMBERS if kind == "numeric" else NAMES, min_size=count, max_size=count)
        )
        for place, kind in enumerate(kinds)
    }
    schema = _schema(**dict(zip(columns, kinds, strict=True)))
    # All source rows alike, so that "differs from its source" can be told from outside.
    rows = pd.DataFrame(
        {
            name: pd.Series([values[0]] * count, dtype=float if kind == "numeric" else object)
            for kind, (name, values) in zip(kinds, columns.items(), strict=True)
        }
    )
    same, _ = inject_anomalies(rows, schema, KINDS, 0, 8)
    assert not _keys(same) & _keys(rows)
    varied = pd.DataFrame(
        {
            name: pd.Series(values, dtype=float if kind == "numeric" else object)
            for kind, (name, values) in zip(kinds, columns.items(), strict=True)
        }
    )
    frame, names = inject_anomalies(varied, schema, KINDS, 0, 8)
    assert len(frame) == len(names) == 8
    assert not np.isinf(frame[schema.names("numeric")].to_numpy(dtype=float)).any()


@pytest.mark.parametrize("dtype", ["str", "category", "object"])
def test_every_way_to_hold_categories_is_read(dtype: str) -> None:
    rows = _mixed().astype({"colour": dtype})
    rows["third"] = rows["third"].astype("Int64")
    rows.loc[0, ["third", "colour"]] = None
    frame, _ = inject_anomalies(rows, MIXED, KINDS, 0, 40)
    assert frame["colour"].map(lambda value: value is None or isinstance(value, str)).all()


def test_real_rows_give_anomalies_of_every_kind(shared_data: Path) -> None:
    rows = pd.read_parquet(shared_data / "nsl-kdd" / "stream" / "2026-01-05.parquet")
    schema = _schema(
        **{
            name: "numeric" if pd.api.types.is_numeric_dtype(rows[name]) else "categorical"
            for name in rows.columns.drop(["event_time", "label"])
        }
    )
    frame, kinds = inject_anomalies(rows[rows["label"] == 0], schema, KINDS, 0, 80)
    assert {kind: int((kinds == kind).sum()) for kind in KINDS} == dict.fromkeys(KINDS, 20)
    assert not _keys(frame[kinds != "swap"]) & _keys(rows[schema.names()])
