"""Known anomalies in a training: how they are drawn and dealt out, and what is not allowed."""

from collections import Counter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.settings import load_settings
from training.errors import ConfigurationError
from training.feed import MemoryFeed
from training.inject import INJECTIONS
from training.supervised_feed import SupervisedFeed, draw
from training.supervision import InjectionKind, Supervision


def feeds(rows: int, known: int, share: float | None, size: int) -> list[SupervisedFeed]:
    """Return the feed of each rank; a row's only feature is its number, of an anomaly a negative one."""
    whole = np.arange(rows, dtype=np.float32)[:, np.newaxis]
    anomalies = -1 - np.arange(known, dtype=np.float32)[:, np.newaxis]
    return [
        SupervisedFeed(
            MemoryFeed(whole[rank::size], rows=rows, rank=rank, size=size, validation_share=0.2, seed=4),
            anomalies,
            share=share,
            seed=4,
            rank=rank,
            size=size,
        )
        for rank in range(size)
    ]


def steps_of(feed: SupervisedFeed, epoch: int, batch_rows: int, first: int = 0) -> list[list[float]]:
    """Return the features that each step of an epoch takes, in order."""
    return [
        chunk.rows[chunk.order[start:end], 0].tolist()
        for chunk in feed.chunks(epoch, batch_rows, first)
        for start, end in pairwise(chunk.bounds.tolist())
    ]


@given(
    known=st.integers(1, 40),
    share=st.none() | st.floats(0.01, 0.9),
    size=st.integers(1, 4),
    batch_rows=st.integers(1, 60),
)
def test_every_rank_gets_its_share_and_the_whole_does_not_depend_on_their_number(
    known: int, share: float | None, size: int, batch_rows: int
) -> None:
    ranks = feeds(53, known, share, size)
    steps = [steps_of(feed, 2, batch_rows) for feed in ranks]
    (alone,) = (steps_of(feed, 2, batch_rows) for feed in feeds(53, known, share, 1))
    assert [Counter(chain(*parts)) for parts in zip(*steps, strict=True)] == [Counter(step) for step in alone]

    taken = [sum(value < 0 for step in own for value in step) for own in steps]
    assert max(taken) - min(taken) <= 1
    counts = Counter(value for step in alone for value in step)
    normal = {value for value in counts if value >= 0}
    assert all(counts[value] == 1 for value in normal)
    assert len(normal) == ranks[0].training_rows
    repeats = [counts[-1.0 - place] for place in range(known)]
    assert max(repeats) - min(repeats) <= 1
    expected = known if share is None else max(1, round(len(normal) * share / (1 - share)))
    assert sum(taken) == expected


def test_an_epoch_that_is_resumed_takes_the_same_in_the_steps_that_are_left() -> None:
    (feed,) = feeds(53, 9, 0.3, 1)
    (again,) = feeds(53, 9, 0.3, 1)
    assert steps_of(feed, 3, 10) == steps_of(again, 3, 10)
    assert steps_of(feed, 3, 10) != steps_of(feed, 4, 10)


def test_the_rows_are_joined_once_for_all_epochs() -> None:
    (feed,) = feeds(53, 9, 0.3, 1)
    (first,), (second,) = feed.chunks(1, 10), feed.chunks(2, 10)
    assert first.rows is second.rows
    assert first.known_from == 53


def test_anomalies_take_turns() -> None:
    assert sorted(Counter(draw(3, 100, 0.05, (1, 1)).tolist()).values()) == [1, 2, 2]
    assert len(set(draw(1000, 100, 0.05, (1, 1)).tolist())) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"anomaly_weight": -1.0}, "anomaly_weight is -1.0"),
        ({"anomaly_weight": float("nan")}, "anomaly_weight is nan"),
        ({"anomaly_weight": 1.0, "anomaly_share": 1.0}, "anomaly_share is 1.0"),
        ({"anomaly_share": 0.1}, "have no effect"),
        ({"synthetic": ("spike",)}, "have no effect"),
    ],
)
def test_settings_that_could_not_act_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Supervision(**options)


def test_kinds_are_those_that_can_be_made() -> None:
    assert set(get_args(InjectionKind)) == set(INJECTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[supervision]\nanomaly_weight = 1\nsynthetic = ['drift']", "Input should be 'spike', 'shift'"),
        ("[supervision]\nweight = 1", "unknown key weight; allowed are anomaly_share, anomaly_weight"),
        ("[supervision]\nanomaly_weight = 1\n[detector]\nname = 'pca'", "'pca' is fitted to normal rows"),
        ("[gates]\ninjected_kinds = []", "injected_kinds one or more of spike, shift, swap, dropout"),
        ("[gates]\ninjected_kinds = ['spike', 'spike']", "injected_kinds one or more of spike"),
        ("[gates]\ninjected_kinds = ['drift']", "Input should be 'spike', 'shift'"),
        ("[detector]\nname = 'oracle'", "Allowed: autoencoder, vae, gan"),
    ],
)
def test_wrong_configuration_names_the_choices(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "floodmark.toml").write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load_settings(tmp_path / "floodmark.toml", {})
    assert message in str(error.value)
