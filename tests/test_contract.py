"""What a contract says over what is learned, and what a window drawn from the reference is: no breach."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histories import bootstrap, history, quarantined, scored
from monitoring.contract import ColumnRules, Contract
from monitoring.event_times import EventTimes
from monitoring.inspection import Terms
from monitoring.past_windows import PastWindows, past_windows
from monitoring.profile import profile_frame
from monitoring.quality import quarantine_reason
from test_quality import LATE, NOW, SCHEMA, TERMS, cells, judged, sound
from training.types import Column, FeatureSchema

Change = Callable[[pd.DataFrame], pd.DataFrame]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(allow_infinity=False, width=32), min_size=1, max_size=30),
    st.lists(st.sampled_from(["a", "b", "c", None, "1"]), min_size=1, max_size=9),
    st.integers(0, 2**32 - 1),
)
def test_a_window_drawn_from_the_reference_is_never_quarantined(
    numbers: list[float], words: list[str | None], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    schema = FeatureSchema(features=(SCHEMA.features[0], SCHEMA.features[2]))
    reference = pd.DataFrame(
        {
            "x": generator.choice(np.array(numbers), 600),
            "word": generator.choice(np.array(words, dtype=object), 600),
        }
    )
    terms = Terms(schema=schema, reference=profile_frame(reference, schema))
    window = reference.iloc[generator.permutation(600)[:300]]
    assert quarantine_reason(judged(window, terms)) is None


def test_a_value_that_is_rare_in_the_reference_may_be_absent() -> None:
    schema = FeatureSchema(features=SCHEMA.features[:2])
    reference = sound(1_000, seed=1).assign(count=[1.0] + [np.nan] * 999)
    terms = Terms(schema=schema, reference=profile_frame(reference, schema))
    empty = sound().assign(count=np.nan)
    assert quarantine_reason(judged(empty, terms)) is None
    often = reference.assign(count=[1.0, np.nan] * 500)
    terms = replace(terms, reference=profile_frame(often, schema))
    assert "'count' has no value" in str(quarantine_reason(judged(empty, terms)))


def test_ranges_of_valid_drift_never_quarantine_unless_the_contract_says_so() -> None:
    window = cells("x", 40.0, 0.5)(sound())
    assert [(item.check, item.severity) for item in judged(window)] == [("ranges", "warn")]
    strict = Contract(columns={"x": ColumnRules(checks={"ranges": "quarantine"})})
    (finding,) = judged(window, replace(TERMS, stated=strict))
    assert finding.severity == "quarantine"
    assert (finding.observed, finding.bound) == (0.5, 0.01)
    # Even then a single outlier is one, and no violation.
    rare = judged(cells("x", 1e6, 0.005)(sound()), replace(TERMS, stated=strict))
    assert [item.severity for item in rare] == ["warn"]


@pytest.mark.parametrize(
    ("rules", "change", "expected"),
    [
        ({"range": (-9.0, 3.9)}, cells("x", 4.0, 0.005), [("ranges", "warn")]),
        ({"nullable": False}, cells("x", None, 0.005), [("missing_rates", "quarantine")]),
        ({"missing_rate": 0.3}, cells("x", None, 0.3), []),
        ({"checks": {"missing_rates": "off"}}, cells("x", None, 0.3), []),
        ({"checks": {"missing_rates": "warn"}}, cells("x", None, 0.3), [("missing_rates", "warn")]),
    ],
)
def test_what_a_contract_says_of_a_column_overrides_what_was_learned(
    rules: dict[str, Any], change: Change, expected: list[tuple[str, str]]
) -> None:
    stated = Contract(columns={"x": ColumnRules(**rules)})
    found = judged(change(sound()), replace(TERMS, stated=stated))
    assert [(item.check, item.severity) for item in found] == expected


def test_only_what_is_stated_is_overridden() -> None:
    learned = TERMS.contract
    stated = Contract(columns={"x": ColumnRules(nullable=False)}, checks={"few_rows": "quarantine"})
    both = replace(TERMS, stated=stated).contract
    assert both == replace(
        learned,
        checks={"few_rows": "quarantine"},
        columns={**learned.columns, "x": replace(learned.columns["x"], nullable=False)},
    )
    assert replace(TERMS, stated=Contract(min_rows=9)).contract.min_rows == 9


def test_a_stated_list_of_categories_is_complete_and_a_learned_one_leaves_room() -> None:
    one = cells("word", "z", 0.005)(sound())
    assert judged(one) == []
    stated = Contract(
        columns={"word": ColumnRules(categories=("a", "b"), checks={"unseen_categories": "quarantine"})}
    )
    (finding,) = judged(one, replace(TERMS, stated=stated))
    assert finding.severity == "quarantine"
    assert finding.message.endswith("'c', 'z'")


def test_rules_that_hold_for_no_feature_are_named_and_change_nothing() -> None:
    stated = Contract(
        columns={
            "presure": ColumnRules(nullable=False),
            "word": ColumnRules(range=(0.0, 1.0)),
            "x": ColumnRules(kind="categorical"),
            "at": ColumnRules(checks={"late_rows": "quarantine"}),
        }
    )
    found = judged(sound(), replace(TERMS, stated=stated))
    assert [(item.check, item.column) for item in found] == [
        ("unknown_rules", "presure"),
        ("unknown_rules", "word"),
        ("unknown_rules", "x"),
    ]
    late = judged(cells("at", LATE, 0.01)(sound()), replace(TERMS, stated=stated))
    assert ("late_rows", "quarantine") in [(item.check, item.severity) for item in late]


def test_a_window_taken_again_is_not_late_as_a_whole() -> None:
    later = PastWindows(ends=(NOW + timedelta(days=30),))
    assert judged(sound(), replace(TERMS, past=later)) == []


def test_earlier_windows_are_those_of_the_ledger_that_were_not_set_aside() -> None:
    times = EventTimes(earliest=NOW, latest=NOW + timedelta(days=1), largest_gap_seconds=60.0)
    later = replace(times, latest=NOW + timedelta(days=2), largest_gap_seconds=90.0)
    past = history(
        replace(bootstrap("day-1", rows=10), times=times),
        quarantined("day-2"),
        replace(scored("day-3"), times=later),
        bootstrap("day-4", rows=30),
    )
    everything = past_windows(past, "day-5", None)
    assert everything == PastWindows(
        rows=(10, 1_000, 30), gaps_seconds=(60.0, 90.0), ends=(times.latest, later.latest)
    )
    of_champion = past_windows(past, "day-5", {"day-1", "elsewhere"})
    assert of_champion == replace(everything, rows=(10,), gaps_seconds=(60.0,))
    assert past_windows(past, "day-3", None).ends == (times.latest,)


def test_a_tiny_variance_is_a_range_of_its_own() -> None:
    generator = np.random.default_rng(0)
    schema = FeatureSchema(features=(Column(name="x", kind="numeric"), Column(name="y", kind="numeric")))

    def drawn(centre: float) -> pd.DataFrame:
        return pd.DataFrame({"x": centre + generator.normal(0, 1e-5, 500), "y": generator.normal(size=500)})

    terms = Terms(schema=schema, reference=profile_frame(drawn(1.0), schema))
    assert judged(drawn(1.0), terms) == []
    assert [(item.check, item.column) for item in judged(drawn(1.001), terms)] == [("ranges", "x")]
