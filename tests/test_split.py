"""The split is complete and disjoint."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.errors import TrainingFailedError
from training.split import split_rows


@settings(deadline=None)
@given(st.integers(5, 2000), st.integers(0, 2**32))
def test_every_row_is_in_exactly_one_part(rows: int, seed: int) -> None:
    parts = split_rows(rows, seed)
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_the_parts_have_their_shares_and_depend_on_the_seed_alone() -> None:
    first, again, other = split_rows(1000, 1), split_rows(1000, 1), split_rows(1000, 2)
    assert [len(part) for part in first] == [500, 300, 200]
    assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert [len(part) for part in split_rows(1000, 1, (0.5, 0.4, 0.1))] == [500, 400, 100]


@settings(deadline=None)
@given(st.integers(0, 100), st.tuples(*[st.floats(0.05, 1)] * 3))
def test_too_few_rows_are_refused_with_the_number_that_is_enough(
    rows: int, weights: tuple[float, float, float]
) -> None:
    fractions = (weights[0] / sum(weights), weights[1] / sum(weights), weights[2] / sum(weights))
    try:
        parts = split_rows(rows, 0, fractions)
    except TrainingFailedError as error:
        needed = int(error.hint.split()[2])
        assert needed > rows
        assert all(len(part) for part in split_rows(needed, 0, fractions))
        with pytest.raises(TrainingFailedError):
            split_rows(needed - 1, 0, fractions)
    else:
        assert all(len(part) for part in parts)


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1), (np.nan, 0.5, 0.5)]
)
def test_fractions_that_are_no_shares_are_an_error(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="positive and sum to one"):
        split_rows(100, 0, fractions)
