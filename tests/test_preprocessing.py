"""Raw columns become the same features wherever, whoever and in whatever order the rows are."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.encoding import CLIP
from training.errors import InvalidWindowError, TrainingFailedError
from training.preprocessing import MAX_LEVELS, Preprocessing, fit_preprocessing
from training.types import Column, ColumnKind, FeatureSchema


def schema(**kinds: ColumnKind) -> FeatureSchema:
    return FeatureSchema(features=tuple(Column(name=name, kind=kind) for name, kind in kinds.items()))


def alone(array: np.ndarray) -> np.ndarray:
    return array


def fit(frame: pd.DataFrame, **kinds: ColumnKind) -> Preprocessing:
    return fit_preprocessing(schema(**kinds), frame, alone)


def fit_on_ranks(frame: pd.DataFrame, ranks: int, **kinds: ColumnKind) -> list[Preprocessing]:
    """Fit as `ranks` processes would, with a thread for each."""
    barrier, slots = threading.Barrier(ranks), [np.empty(0)] * ranks

    def fit_rank(rank: int) -> Preprocessing:
        def gather(array: np.ndarray) -> np.ndarray:
            slots[rank] = array
            barrier.wait(10)
            gathered = np.concatenate(slots)
            barrier.wait(10)
            return gathered

        return fit_preprocessing(schema(**kinds), frame.iloc[rank::ranks], gather)

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(fit_rank, range(ranks)))


NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf), st.sampled_from([0.0, 1.0]))
WORDS = st.one_of(st.none(), st.sampled_from(["tcp", "udp", "icmp", ""]))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(NUMBERS, WORDS), min_size=5, max_size=60), st.integers(2, 4))
def test_any_number_of_ranks_fits_the_same_to_the_bit(
    rows: list[tuple[float, str | None]], ranks: int
) -> None:
    frame = pd.DataFrame(rows, columns=["x", "p"])
    together = fit(frame, x="numeric", p="categorical")
    assert fit_on_ranks(frame, ranks, x="numeric", p="categorical") == [together] * ranks
    assert fit(frame.iloc[::-1], x="numeric", p="categorical") == together


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(NUMBERS, WORDS), min_size=1, max_size=60), NUMBERS, st.one_of(WORDS, st.text()))
def test_features_are_finite_bounded_and_survive_the_file(
    rows: list[tuple[float, str | None]], number: float, word: str | None
) -> None:
    fitted = fit(pd.DataFrame(rows, columns=["x", "p"]), x="numeric", p="categorical")
    features = fitted.transform(pd.DataFrame([(number, word)], columns=["x", "p"]))
    assert features.dtype == np.float32
    assert features.shape == (1, fitted.width)
    assert np.isfinite(features).all()
    assert np.abs(features).max() <= CLIP
    loaded = Preprocessing.from_json(fitted.to_json())
    assert loaded == fitted


def test_columns_are_found_by_name_and_others_ignored() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 5.0], "b": [10.0, 20.0, 90.0], "c": ["x", "y", "x"]})
    fitted = fit(frame, a="numeric", b="numeric", c="categorical")
    shuffled = frame[["c", "b", "a"]].assign(label=1)
    np.testing.assert_array_equal(fitted.transform(shuffled), fitted.transform(frame))


def test_numeric_features_are_standardised_and_missing_ones_marked() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, math.nan, math.inf]})
    features = fit(frame, x="numeric").transform(frame)
    assert features.mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-6)
    assert features[3, 0] == features[4, 0] == features[1, 0]  # the median
    assert (features[:, 1] > 0).tolist() == [False, False, False, True, True]


def test_where_training_missed_nothing_a_missing_value_is_as_far_out_as_can_be() -> None:
    fitted = fit(pd.DataFrame({"x": [1.0, 2.0, 3.0]}), x="numeric")
    assert fitted.width == 1
    assert fitted.transform(pd.DataFrame({"x": [math.nan, math.inf]})).tolist() == [[CLIP], [CLIP]]


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_unit_of_a_column_does_not_matter(unit: float) -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 50.0])
    fitted = fit(pd.DataFrame({"x": values * unit}), x="numeric")
    expected = fit(pd.DataFrame({"x": values}), x="numeric").transform(pd.DataFrame({"x": values}))
    np.testing.assert_allclose(fitted.transform(pd.DataFrame({"x": values * unit})), expected, rtol=1e-5)


def test_a_cell_that_is_no_value_at_all_is_an_error_of_the_window() -> None:
    fitted = fit(pd.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"]}), x="numeric", c="categorical")
    for wrong in ({"x": [10**400], "c": ["a"]}, {"x": [[1]], "c": ["a"]}, {"x": [1.0], "c": [["a"]]}):
        with pytest.raises(InvalidWindowError):
            fitted.transform(pd.DataFrame(wrong, dtype=object))


def test_heavy_tails_are_compressed_so_that_ordinary_rows_stay_apart() -> None:
    values = np.concatenate([np.linspace(-1, 1, 999), [1e9]])
    fitted = fit(pd.DataFrame({"x": values}), x="numeric")
    assert fitted.numeric[0].tail is not None
    ordinary = fitted.transform(pd.DataFrame({"x": [-1.0, 1.0]}))
    assert ordinary[1, 0] - ordinary[0, 0] > 0.5
    assert fit(pd.DataFrame({"x": values[:-1]}), x="numeric").numeric[0].tail is None


def test_constant_and_empty_columns_are_harmless() -> None:
    fitted = fit(pd.DataFrame({"x": [3.0] * 4, "y": [None] * 4}), x="numeric", y="numeric")
    features = fitted.transform(pd.DataFrame({"x": [3.0, 4.0], "y": [None, 1.0]}))
    assert features[0].tolist() == [0.0, 0.0, 0.0]
    assert features[1, 0] == pytest.approx(1 / 0.3)  # out of the ordinary, and seen
    assert features[1, 2] == -1.0


def test_a_level_has_its_slot_unseen_ones_the_last_and_missing_its_own() -> None:
    frame = pd.DataFrame({"p": ["tcp", "tcp", "udp", None]})
    fitted = fit(frame, p="categorical")
    assert fitted.categorical[0].levels == ("tcp", None, "udp")
    features = fitted.transform(pd.DataFrame({"p": ["tcp", None, "udp", "sctp"]}))
    np.testing.assert_allclose(features + np.array([0.5, 0.25, 0.25, 0.0]), np.eye(4), atol=1e-7)


def test_missing_is_unseen_where_training_had_none() -> None:
    fitted = fit(pd.DataFrame({"p": ["a", "b"]}), p="categorical")
    features = fitted.transform(pd.DataFrame({"p": ["zz", None]}))
    np.testing.assert_array_equal(features[0], features[1])
    assert features[0, -1] == 1.0


def test_levels_beyond_the_cap_share_the_slot_of_the_unseen() -> None:
    values = [f"{level:03d}" for level in range(MAX_LEVELS + 10) for _ in range(2)] + ["000"]
    fitted = fit(pd.DataFrame({"p": values}), p="categorical")
    assert fitted.width == MAX_LEVELS + 1
    features = fitted.transform(pd.DataFrame({"p": [f"{MAX_LEVELS + 5:03d}", "never"]}))
    np.testing.assert_array_equal(features[0], features[1])


def test_the_type_that_holds_the_text_does_not_matter() -> None:
    words = pd.Series(["a", "b", None, "a"], dtype="str")
    fitted = fit(pd.DataFrame({"p": words}), p="categorical")
    expected = fitted.transform(pd.DataFrame({"p": words}))
    for same in (words.astype("object"), words.astype("category")):
        np.testing.assert_array_equal(fitted.transform(pd.DataFrame({"p": same})), expected)


def test_whole_numbers_are_the_same_level_with_and_without_missing_neighbours() -> None:
    fitted = fit(pd.DataFrame({"code": [80, 443, 80]}), code="categorical")
    assert fitted.categorical[0].levels == ("80", "443")
    whole = fitted.transform(pd.DataFrame({"code": [80]}))
    np.testing.assert_array_equal(fitted.transform(pd.DataFrame({"code": [80, None]}))[:1], whole)


def test_every_kind_of_number_is_one() -> None:
    fitted = fit(pd.DataFrame({"x": [0.0, 1.0, 2.0]}), x="numeric")
    expected = fitted.transform(pd.DataFrame({"x": [1.0, 0.0]}))
    for values in (
        pd.Series([1, 0]),
        pd.Series([True, False]),
        pd.Series([1, 0], dtype="Int64"),
        pd.Series([1, 0.0], dtype=object),
        pd.Series([np.float32(1), 0], dtype=object),
        pd.Series([Decimal("1.0"), Decimal(0)], dtype=object),
    ):
        np.testing.assert_array_equal(fitted.transform(pd.DataFrame({"x": values})), expected)
    missing = fitted.transform(pd.DataFrame({"x": pd.Series([1, None], dtype="Int64")}))
    assert missing.tolist() == [[0.0], [CLIP]]


@pytest.mark.parametrize("wrong", ["12,5", "7", 1j, [1], pd.Timestamp("2026-01-01")])
def test_what_is_no_number_is_named_with_its_column(wrong: object) -> None:
    fitted = fit(pd.DataFrame({"x": [1.0, 2.0]}), x="numeric")
    with pytest.raises(InvalidWindowError, match=r"'x' holds") as caught:
        fitted.transform(pd.DataFrame({"x": pd.Series([1.0, None, wrong], dtype=object)}))
    assert repr(wrong) in str(caught.value)


def test_missing_columns_are_named() -> None:
    fitted = fit(pd.DataFrame({"x": [1.0], "y": [2.0]}), x="numeric", y="numeric")
    with pytest.raises(InvalidWindowError, match="missing: 'y'"):
        fitted.transform(pd.DataFrame({"x": [1.0], "Y": [1.0]}))
    with pytest.raises(InvalidWindowError, match="missing: 'z'"):
        fit(pd.DataFrame({"x": [1.0]}), x="numeric", z="categorical")


def test_no_rows_at_all_are_refused_but_nothing_to_transform_is_fine() -> None:
    with pytest.raises(TrainingFailedError, match="no training row"):
        fit(pd.DataFrame({"x": pd.Series(dtype=float)}), x="numeric")
    fitted = fit(pd.DataFrame({"x": [1.0, 2.0]}), x="numeric")
    assert fitted.transform(pd.DataFrame({"x": pd.Series(dtype=float)})).shape == (0, 1)
