"""The data contract: what quarantines a window, what only warns, and what is no finding."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.contract import Finding, QualityLimits
from monitoring.frames import clean_frame, usable_labels
from monitoring.inspection import Terms
from monitoring.past_windows import PastWindows
from monitoring.profile import profile_frame
from monitoring.quality import CHECKS, check_quality, quarantine_reason
from monitoring.schema import infer_schema
from training.errors import ConfigurationError, InvalidWindowError
from training.types import Column, FeatureSchema

NOW = datetime(2026, 1, 10, tzinfo=UTC)
ROWS = 200
SCHEMA = FeatureSchema(
    features=(
        Column(name="x", kind="numeric"),
        Column(name="count", kind="numeric"),
        Column(name="word", kind="categorical"),
        Column(name="void", kind="numeric"),
        Column(name="fixed", kind="numeric"),
    ),
    time_column="at",
    label_column="label",
    ignored=("row",),
)


def sound(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "at": pd.date_range("2026-01-09", periods=rows, freq="min", tz="UTC"),
            "x": generator.normal(size=rows),
            "count": generator.integers(0, 9, rows),
            "word": pd.Series(generator.choice(["a", "b", "c"], rows), dtype=object),
            "void": np.full(rows, np.nan),
            "fixed": np.ones(rows),
            "label": generator.integers(0, 2, rows),
            "row": np.arange(rows),
        }
    )


PROFILE = profile_frame(sound(1_000, seed=1)[SCHEMA.names()], SCHEMA)


PAST = PastWindows(
    rows=(150,),
    gaps_seconds=(10_800.0,),
    ends=(datetime(2026, 1, 8, 23, tzinfo=UTC), NOW + timedelta(days=9)),
)
TERMS = Terms(schema=SCHEMA, reference=PROFILE, past=PAST)


def judged(frame: pd.DataFrame, terms: Terms = TERMS, *, now: datetime = NOW) -> list[Finding]:
    return check_quality(profile_frame(frame, terms.schema), terms, now=now)


def cells(name: str, value: object, share: float = 1.0) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Overwrite the first `share` of a column."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = list(frame[name])
        count = round(share * len(values))
        values[:count] = [value] * count
        mixed = value == "\udcff" or (isinstance(value, int) and value > 2**63)  # pandas guesses no dtype
        return frame.assign(**{name: pd.Series(values, index=frame.index, dtype=object if mixed else None)})

    return change


def repeated(share: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Replace the last `share` of the rows by the first row."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        kept = frame.iloc[: len(frame) - round(share * len(frame))]
        return pd.concat([kept, *[frame.iloc[:1]] * (len(frame) - len(kept))], ignore_index=True)

    return change


def twice(name: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: pd.concat([frame, frame[[name]]], axis=1)


def distinct_words(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(word=[f"word {row}" for row in range(len(frame))])


def mixed_offsets(frame: pd.DataFrame) -> pd.DataFrame:
    times = [f"2026-01-09T01:{row % 60:02}:00{'' if row % 3 else '+01:00'}" for row in range(len(frame))]
    return frame.assign(at=["2026-01-09T00:00:00Z", *times[1:]])


LATE = datetime(2026, 1, 7, 20, tzinfo=UTC)
BROKEN: list[tuple[str, Callable[[pd.DataFrame], pd.DataFrame], str, str | None, str, str]] = [
    ("no rows", lambda frame: frame.iloc[:0], "no_rows", None, "quarantine", "no rows"),
    ("few rows", lambda frame: frame.iloc[:49], "few_rows", None, "warn", "49 rows"),
    ("no x", lambda frame: frame.drop(columns="x"), "missing_columns", "x", "quarantine", "'x'"),
    ("two x", twice("x"), "repeated_columns", "x", "quarantine", "2 times"),
    ("two times", twice("at"), "repeated_columns", "at", "quarantine", "2 times"),
    ("extra", lambda frame: frame.assign(new=[b"1"] * len(frame)), "extra_columns", None, "warn", "new"),
    ("text in x", cells("x", "n/a", 0.01), "retyped_columns", "x", "quarantine", "'n/a'"),
    ("x is text", cells("x", "1.5"), "retyped_columns", "x", "quarantine", "'1.5'"),
    ("x is lists", cells("x", [1]), "retyped_columns", "x", "quarantine", "[1]"),
    ("x is huge", cells("x", 10**400, 1.0), "retyped_columns", "x", "quarantine", "1000"),
    ("word is numbers", cells("word", 7), "retyped_columns", "word", "quarantine", "numbers such as 7"),
    ("number in word", cells("word", 7, 0.01), "retyped_columns", "word", "quarantine", "such as 7"),
    ("x is all missing", cells("x", None), "all_missing", "x", "quarantine", "200 rows"),
    ("word is all missing", cells("word", None), "all_missing", "word", "quarantine", "200 rows"),
    ("x is all infinite", cells("x", np.inf), "infinite_values", "x", "quarantine", "100.00%"),
    ("2 % infinite", cells("x", -np.inf, 0.02), "infinite_values", "x", "quarantine", "2.00%"),
    ("1 % infinite", cells("x", np.inf, 0.01), "infinite_values", "x", "warn", "1.00%"),
    ("30 % missing", cells("x", np.nan, 0.3), "missing_rates", "x", "quarantine", "30.0%"),
    ("30 % of words missing", cells("word", None, 0.3), "missing_rates", "word", "quarantine", "30.0%"),
    ("10 % missing", cells("x", np.nan, 0.1), "missing_rates", "x", "warn", "10.0%"),
    ("30 % repeated", repeated(0.3), "duplicated_rows", None, "quarantine", "30.0%"),
    ("10 % repeated", repeated(0.1), "duplicated_rows", None, "warn", "10.0%"),
    ("no time", lambda frame: frame.drop(columns="at"), "event_times", "at", "quarantine", "missing"),
    ("times are words", cells("at", "soon"), "event_times", "at", "quarantine", "'soon'"),
    ("one time is null", cells("at", None, 0.005), "event_times", "at", "quarantine", "1 of 200"),
    ("all times are null", cells("at", None), "event_times", "at", "quarantine", "200 of 200"),
    ("times are numbers", cells("at", 1_767_000_000), "event_times", "at", "quarantine", "1767000000"),
    ("times ahead", cells("at", "2026-01-12T00:00:00Z"), "future_rows", "at", "warn", "2026-01-12"),
    ("no label", lambda frame: frame.drop(columns="label"), "label_values", "label", "warn", "missing"),
    ("label 2", cells("label", 2, 0.1), "label_values", "label", "warn", "numbers such as 2"),
    ("labels are words", cells("label", "bad"), "label_values", "label", "warn", "'bad'"),
    ("x is constant", cells("x", 3.0), "constant_columns", "x", "warn", "is 3 in"),
    ("word is constant", cells("word", "a"), "constant_columns", "word", "warn", "'a'"),
    ("one outlier", cells("x", 1e6, 0.005), "ranges", "x", "warn", "as far as 1e+06"),
    ("many out of range", cells("x", -20.0, 0.1), "ranges", "x", "warn", "10.00%"),
    ("new words", cells("word", "z", 0.1), "unseen_categories", "word", "warn", "'z'"),
    ("many words", distinct_words, "unseen_categories", "word", "warn", "200 unseen categories"),
    ("many rows", lambda _: sound(700), "row_count", None, "warn", "700 rows"),
    (
        "a gap",
        cells("at", NOW + timedelta(hours=12), 0.005),
        "time_gaps",
        "at",
        "warn",
        "2026-01-09T03:19:00",
    ),
    ("late", cells("at", LATE, 0.01), "late_rows", "at", "warn", "1.00%"),
    ("other offsets", mixed_offsets, "mixed_offsets", "at", "warn", "+00:00, +01:00, none"),
    ("word is no UTF-8", cells("word", "\udcff", 0.01), "retyped_columns", "word", "quarantine", "not UTF-8"),
    ("word is bytes", cells("word", b"\xff", 0.01), "retyped_columns", "word", "quarantine", "xff"),
]


def test_a_sound_window_has_no_findings() -> None:
    findings = judged(sound())
    assert findings == []
    assert quarantine_reason(findings) is None


@pytest.mark.parametrize(
    ("change", "check", "column", "severity", "detail"),
    [case[1:] for case in BROKEN],
    ids=[case[0] for case in BROKEN],
)
def test_each_breach_is_found_alone_with_its_figures(
    change: Callable[[pd.DataFrame], pd.DataFrame],
    check: str,
    column: str | None,
    severity: str,
    detail: str,
) -> None:
    findings = judged(change(sound()))
    matching = [
        item for item in findings if (item.check, item.column, item.severity) == (check, column, severity)
    ]
    assert len(matching) == 1, findings
    assert detail in matching[0].message, matching
    assert (quarantine_reason(findings) is not None) == (severity == "quarantine")
    # Repeating one row may leave a column constant and equal times; nothing else may tag along.
    assert {item.check for item in findings} <= {check}, findings


def test_every_check_has_a_breach_in_the_table() -> None:
    assert {case[2] for case in BROKEN} == set(CHECKS) - {"unknown_rules"}


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.astype({"count": float}),
        lambda frame: frame.assign(count=frame["count"] > 4),
        lambda frame: frame.astype({"count": "Int64"}),
        lambda frame: frame.astype({"word": "category"}),
        lambda frame: frame.astype({"word": "str"}),
        lambda frame: frame.assign(at=frame["at"].map(lambda at: at.isoformat())),
        lambda frame: frame.assign(label=frame["label"] == 1),
        lambda frame: frame.assign(label=None),
        lambda frame: frame.assign(label=[np.nan, *frame["label"][1:]]),
        lambda frame: frame.drop(columns="row"),
        lambda frame: frame[frame.columns[::-1]],
        lambda frame: frame.set_index(pd.Index([0] * len(frame))),
    ],
)
def test_harmless_changes_are_no_findings(change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    assert judged(change(sound())) == []


def test_without_a_champion_only_the_window_itself_is_judged() -> None:
    findings = judged(cells("x", np.nan, 0.6)(sound()), Terms(schema=SCHEMA))
    assert [(item.check, item.column) for item in findings] == [("all_missing", "void")]
    findings = judged(repeated(0.3)(sound()), Terms(schema=SCHEMA))
    assert ("duplicated_rows", "quarantine") in [(item.check, item.severity) for item in findings]


def test_a_rare_event_that_is_absent_is_no_constant() -> None:
    reference = sound(1_000, seed=1).assign(fixed=[1.0] * 999 + [2.0])
    profile = profile_frame(reference, SCHEMA)
    assert judged(sound(), Terms(schema=SCHEMA, reference=profile)) == []


def test_natural_repetition_is_measured_by_the_reference() -> None:
    schema = FeatureSchema(features=(Column(name="coin", kind="categorical"),))
    coins = pd.DataFrame({"coin": ["heads", "tails"] * 500})
    profile = profile_frame(coins, schema)
    assert profile.repeated_share == pytest.approx(0.998)
    assert judged(coins, Terms(schema=schema, reference=profile)) == []
    # A longer window of few values repeats itself more, without any fault.
    short = profile_frame(coins.iloc[:3], schema)
    assert [item.severity for item in judged(coins, Terms(schema=schema, reference=short))] == ["warn"]


def test_the_worst_finding_leads_the_reason() -> None:
    frame = cells("word", None)(sound()).drop(columns="x")
    reason = quarantine_reason(judged(frame)) or ""
    assert reason.index("'x' is missing") < reason.index("'word' has no value")
    findings = judged(frame)
    assert quarantine_reason(findings[::-1]) == reason


@pytest.mark.parametrize(
    "bounds",
    [
        {"min_rows": 0},
        {"missing_rise_warn": float("nan")},
        {"missing_rise_warn": 0.3},
        {"infinite_share_quarantine": -0.1},
        {"duplicate_rise_quarantine": 1.1},
        {"future_tolerance_days": float("inf")},
    ],
)
def test_impossible_limits_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bounds))):
        QualityLimits(**bounds)  # type: ignore[arg-type] # one float stands for the integer


def test_clean_frame_has_one_type_per_kind_in_the_order_of_the_schema() -> None:
    frame = sound()[sound().columns[::-1]].astype({"count": "Int64", "word": "category"})
    frame.loc[0, ["x", "count", "word"]] = [np.inf, None, None]
    before = frame.copy()
    clean = clean_frame(frame, SCHEMA)
    assert list(clean.columns) == [*SCHEMA.names(), "at", "label"]
    assert all(clean[name].dtype == np.float64 for name in SCHEMA.names("numeric"))
    assert clean["word"].dtype == object
    assert clean["word"].iloc[0] is None
    assert clean.loc[0, ["x", "count"]].isna().all()
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(clean_frame(clean, SCHEMA), clean)


def test_clean_frame_refuses_what_is_not_in_the_contract() -> None:
    with pytest.raises(InvalidWindowError, match="0 times"):
        clean_frame(sound().drop(columns="x"), SCHEMA)
    with pytest.raises(InvalidWindowError, match="such as 'n/a'"):
        clean_frame(cells("x", "n/a", 0.01)(sound()), SCHEMA)


def test_labels_are_used_only_if_all_are_labels() -> None:
    frame = sound().assign(label=pd.Series([True, None] * (ROWS // 2), dtype=object))
    labels = usable_labels(frame, SCHEMA)
    assert labels is not None
    np.testing.assert_array_equal(labels[:2], [1.0, np.nan])
    for unusable in (
        sound().drop(columns="label"),
        cells("label", 0.5, 0.01)(sound()),
        cells("label", "1")(sound()),
        cells("label", None)(sound()),
    ):
        assert usable_labels(unusable, SCHEMA) is None


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just("\udcff"),
    st.binary(max_size=3),
    st.datetimes(),
    st.decimals(allow_nan=False),  # pandas itself fails on a signalling NaN
    st.lists(st.integers(), max_size=2),
    st.just(pd.NaT),
    st.just(pd.NA),
)
COLUMN = st.one_of(
    st.lists(VALUES, min_size=4, max_size=4),
    st.lists(st.floats(), min_size=4, max_size=4),
    st.lists(st.sampled_from(["a", "b", None]), min_size=4, max_size=4),
)
NAMES = ("at", "x", "count", "word", "void", "fixed", "label", "row", "unknown")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COLUMN, min_size=len(NAMES), max_size=len(NAMES)), st.permutations(NAMES))
def test_any_content_in_any_order_gives_the_same_findings(
    columns: list[list[object]], order: list[str]
) -> None:
    frame = pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in zip(NAMES, columns, strict=True)}
    )
    findings = judged(frame)
    assert judged(frame[order]) == findings
    if not any(item.severity == "quarantine" for item in findings):
        clean_frame(frame, SCHEMA)


@settings(max_examples=40, deadline=None)
@given(st.permutations(list(sound().columns)), st.sampled_from(BROKEN))
def test_reordering_columns_never_changes_findings(
    order: list[str], case: tuple[str, Callable[[pd.DataFrame], pd.DataFrame], str, str | None, str, str]
) -> None:
    expected = judged(case[1](sound()))
    assert judged(case[1](sound()[order])) == expected


def test_real_traffic_is_sound_before_and_after_its_drift(shared_data: Path) -> None:
    days = [pd.read_parquet(path) for path in sorted((shared_data / "nsl-kdd" / "stream").glob("*.parquet"))]
    schema, _ = infer_schema(days[0], time_column="event_time", label_column="label", ignore=())
    profile = profile_frame(pd.concat(days[:3])[schema.names()], schema)
    now = datetime(2026, 1, 17, tzinfo=UTC)
    terms = Terms(schema=schema, reference=profile)
    found = [judged(day, terms, now=now) for day in days]
    terms = Terms(schema=schema, reference=profile)
    found = [judged(day, terms, now=now) for day in days]
    assert [quarantine_reason(findings) for findings in found] == [None] * 12
    assert [len(findings) for findings in found[:6]] == [0] * 6
    assert sum(map(len, found)) <= 4
