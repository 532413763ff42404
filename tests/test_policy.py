"""The retraining policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.policy import RetrainingPolicy, WindowOutlook, decide_first_training, decide_retraining
from training.types import DriftStatus

STABLE, DRIFTED, INCONCLUSIVE = DriftStatus.STABLE, DriftStatus.DRIFTED, DriftStatus.INCONCLUSIVE


def outlooks(*statuses: DriftStatus, rows: int = 1_000) -> list[WindowOutlook]:
    return [WindowOutlook(id=f"w{place}", rows=rows, status=status) for place, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "retrain", "reason"),
    [
        ((), False, "not scored"),
        ((DRIFTED,), False, "1 of the last 1 windows drifted; the policy asks for 2 of 3"),
        ((DRIFTED, DRIFTED), True, "2 of the last 2"),
        ((DRIFTED, STABLE, DRIFTED), True, "2 of the last 3"),
        ((DRIFTED, DRIFTED, STABLE), False, "the newest window is STABLE"),
        ((DRIFTED, DRIFTED, INCONCLUSIVE), False, "the newest window is INCONCLUSIVE"),
        ((DRIFTED, STABLE, STABLE, DRIFTED), False, "1 of the last 3"),
        ((DRIFTED, INCONCLUSIVE, DRIFTED), True, "2 of the last 3"),
    ],
)
def test_k_of_n_with_the_newest(statuses: tuple[DriftStatus, ...], retrain: bool, reason: str) -> None:
    decision = decide_retraining(outlooks(*statuses), RetrainingPolicy())
    assert decision.retrain is retrain
    assert reason in decision.reason


def test_training_waits_for_enough_rows() -> None:
    decision = decide_retraining(outlooks(DRIFTED, DRIFTED, rows=100), RetrainingPolicy())
    assert not decision.retrain
    assert "200 rows; the policy asks for 1000" in decision.reason


@given(st.lists(st.sampled_from(DriftStatus), max_size=20))
def test_only_drifted_windows_are_trained_on_and_the_newest_is_one(statuses: list[DriftStatus]) -> None:
    windows = outlooks(*statuses)
    decision = decide_retraining(windows, RetrainingPolicy())
    assert bool(decision.windows) is decision.retrain
    drifted = [outlook.id for outlook in windows[-3:] if outlook.status is DRIFTED]
    if decision.retrain:
        assert list(decision.windows) == drifted
        assert decision.windows[-1] == windows[-1].id


@pytest.mark.parametrize(
    ("windows", "retrain"),
    [([("a", 900)], False), ([("a", 10)] * 3, False), ([("a", 400)] * 3, True)],
)
def test_the_first_training_waits_for_windows_and_rows(windows: list[tuple[str, int]], retrain: bool) -> None:
    assert decide_first_training(windows, RetrainingPolicy()).retrain is retrain


@pytest.mark.parametrize("wrong", [{"drifted": 0}, {"drifted": 4}, {"min_rows": 0}, {"bootstrap_windows": 0}])
def test_a_policy_validates_itself(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetrainingPolicy(**wrong)
