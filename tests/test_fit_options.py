"""The options of the optimization: what goes together, and the schedule of the learning rate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.detectors import check_options
from training.detectors.options import FitOptions
from training.errors import ConfigurationError
from training.types import DetectorSpec

RULES = st.sampled_from(["none", "linear", "square_root"])


@pytest.mark.parametrize(("rule", "expected"), [("none", 0.1), ("linear", 0.4), ("square_root", 0.2)])
def test_the_learning_rate_is_scaled_by_the_batch_of_all_ranks(rule: str, expected: float) -> None:
    options = FitOptions(learning_rate=0.1, learning_rate_scaling=rule, base_batch=256)  # type: ignore[arg-type] # one of three
    assert options.peak_learning_rate(1024) == pytest.approx(expected)
    assert options.peak_learning_rate(256) == 0.1


@given(RULES, st.integers(0, 3), st.integers(1, 50), st.integers(1, 4096))
def test_the_learning_rate_rises_to_its_peak_then_falls_to_zero(
    rule: str, warmup: int, steps: int, batch: int
) -> None:
    options = FitOptions(learning_rate_scaling=rule, warmup_epochs=warmup, epochs=5)  # type: ignore[arg-type] # one of three
    rates = options.learning_rates(0, 5 * steps, steps, batch)
    rising = warmup * steps
    assert (np.diff(rates[:rising]) > 0).all()
    assert (np.diff(rates[rising:]) < 0).all()
    assert rates.max() == pytest.approx(options.peak_learning_rate(batch), rel=1e-6)
    assert 0 < rates[-1] <= (options.peak_learning_rate(batch) if steps == 1 else rates[rising])
    assert options.learning_rates(5 * steps, 5 * steps + 3, steps, batch) == pytest.approx([0, 0, 0])


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 3))
def test_the_schedule_does_not_depend_on_the_calls_that_ask_for_it(
    first: int, more: int, warmup: int
) -> None:
    options = FitOptions(warmup_epochs=warmup, epochs=4)
    whole = options.learning_rates(0, 80, 20, 64)
    np.testing.assert_array_equal(
        options.learning_rates(first, first + more, 20, 64), whole[first : first + more]
    )


def test_the_schedule_is_half_a_cosine() -> None:
    rates = FitOptions(learning_rate=1.0, epochs=2).learning_rates(0, 8, 4, 64)
    np.testing.assert_allclose(
        rates, [(1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)], rtol=1e-6
    )


@given(st.integers(1, 10**9))
def test_a_batch_is_a_power_of_two_within_bounds(rows: int) -> None:
    batch = FitOptions(smallest_batch=16, largest_batch=1024).batch_rows(rows)
    assert 16 <= batch <= 1024
    assert batch & (batch - 1) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"clipping": "after_averaging", "local_steps": 4},
            "averaged with local_steps = 1 only",
        ),
        ({"warmup_epochs": 40}, "warmup_epochs is 40; it must be less than epochs, 40"),
        ({"smallest_batch": 1024}, "smallest_batch is 1024, more than largest_batch, 512"),
        ({"clip_norm": 0.0}, "clip_norm = 0.0: Input should be greater than 0"),
        ({"learning_rate": math.inf}, "learning_rate = inf: Input should be a finite number"),
        ({"exchange": "bfloat16"}, "Input should be 'float32' or 'float16'"),
        ({"precision": "mixed_float16"}, "Input should be 'float32' or 'mixed_bfloat16'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, float | str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_options(DetectorSpec(options=options))
    assert message in str(refused.value)
    assert "ArgsKwargs" not in str(refused.value)
