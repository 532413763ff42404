"""The schema that the first window implies."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from monitoring.frames import as_text, described, float_values, value_kind
from monitoring.schema import infer_schema, with_columns
from training.errors import ConfigurationError, InvalidWindowError
from training.types import Column, FeatureSchema


def infer(
    frame: pd.DataFrame,
    time_column: str | None = None,
    label_column: str | None = None,
    ignore: tuple[str, ...] = (),
) -> tuple[FeatureSchema, list[str]]:
    return infer_schema(frame, time_column=time_column, label_column=label_column, ignore=ignore)


def test_kinds_and_order_follow_the_frame() -> None:
    frame = pd.DataFrame(
        {
            "z": [1, 2],
            "word": ["a", None],
            "flag": [True, False],
            "at": [datetime(2026, 1, 1, tzinfo=UTC)] * 2,
            "a": [0.5, np.nan],
            "label": [0, 1],
            "row": [1, 2],
        }
    )
    schema, warnings = infer(frame, "at", "label", ("row", "absent"))
    assert [(column.name, column.kind) for column in schema.features] == [
        ("z", "numeric"),
        ("word", "categorical"),
        ("flag", "numeric"),
        ("a", "numeric"),
    ]
    assert (schema.time_column, schema.label_column) == ("at", "label")
    assert schema.ignored == ("row", "absent")
    assert warnings == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series([1, None], dtype="Int64"), "numeric"),
        (pd.Series([True, None], dtype=object), "numeric"),
        (pd.Series([Decimal("1.5"), None], dtype=object), "numeric"),
        (pd.Series([1.5, 2.5], dtype="float32"), "numeric"),
        (pd.Series(["a", None], dtype=object), "categorical"),
        (pd.Series(["a", "b"], dtype="category"), "categorical"),
        (pd.Series([1, 2], dtype="category"), "numeric"),
        (pd.Series([None, None], dtype="category"), "empty"),
        (pd.Series([None, np.nan], dtype=object), "empty"),
        (pd.Series([pd.NaT, pd.NaT]), "empty"),
        (pd.Series([datetime(2026, 1, 1, tzinfo=UTC)], dtype=object), "timestamps"),
        (pd.Series([1, "a"], dtype=object), "unsupported"),
        (pd.Series([1 + 2j]), "unsupported"),
        (pd.Series([[1], [2]], dtype=object), "unsupported"),
        (pd.Series([b"x"], dtype=object), "unsupported"),
        (pd.Series([pd.Timedelta(1)]), "unsupported"),
    ],
)
def test_a_column_is_what_its_values_are(values: pd.Series, kind: str) -> None:
    assert value_kind(values) == kind


def test_numbers_of_every_dtype_become_float64_and_impossible_ones_are_refused() -> None:
    for values in (pd.Series([1, None], dtype="Int64"), pd.Series([True, None], dtype=object)):
        np.testing.assert_array_equal(float_values(values), [1.0, np.nan])
    with pytest.raises(InvalidWindowError, match="'huge'"):
        float_values(pd.Series([10**400, 1], dtype=object, name="huge"))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1.5, np.nan]),
        pd.Series([1.5, None], dtype="Float64"),
        pd.Series(["1.5", None], dtype="string"),
        pd.Series(["1.5", None], dtype="category"),
    ],
)
def test_values_of_every_dtype_become_text_or_none(values: pd.Series) -> None:
    assert as_text(values).tolist() == ["1.5", None]


def test_the_example_is_the_value_out_of_place() -> None:
    assert described(pd.Series([1, 2, "n/a"], dtype=object)) == "mixed values such as 'n/a'"
    assert described(pd.Series(["a", "b", 7], dtype=object)) == "mixed values such as 7"
    assert described(pd.Series([None], dtype=object)) == "no value"


def test_columns_that_are_no_features_are_named_with_the_reason() -> None:
    rows = 100
    frame = pd.DataFrame(
        {
            "x": np.arange(rows),
            "seen": pd.date_range("2026-01-01", periods=rows, tz="UTC"),
            "list": [[1]] * rows,
            "bytes": [b"a"] * rows,
            "uuid": [f"id-{row}" for row in range(rows)],
            "half": [f"v{row // 2}" for row in range(rows)],
        }
    )
    schema, warnings = infer(frame)
    assert schema.names() == ["x", "half"]
    assert schema.ignored == ("seen", "list", "bytes", "uuid")
    for name, reason in zip(schema.ignored, ("timestamps", "neither", "neither", "identifier"), strict=True):
        (warning,) = [text for text in warnings if repr(name) in text]
        assert reason in warning


def test_short_windows_cannot_reveal_identifiers() -> None:
    schema, warnings = infer(pd.DataFrame({"word": [f"w{row}" for row in range(99)]}))
    assert schema.names() == ["word"]
    assert warnings == []


def test_a_missing_label_column_is_a_warning_and_stays_in_the_schema() -> None:
    schema, warnings = infer(pd.DataFrame({"x": [1]}), label_column="label")
    assert schema.label_column == "label"
    assert len(warnings) == 1
    assert "'label'" in warnings[0]


@pytest.mark.parametrize(
    ("frame", "time_column", "message"),
    [
        (pd.DataFrame({"x": [1]}), "at", "no time column 'at'"),
        (pd.DataFrame({"x": [1], "void": [None]}), None, "'void' has no value"),
        (pd.DataFrame({"x": []}), None, "0 rows"),
        (pd.DataFrame({"at": [1], "list": [[1]]}), "at", "no column .* can be a feature"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), None, "more than once"),
        (pd.DataFrame([[1, 2]]), None, "without a text name"),
    ],
)
def test_first_windows_that_teach_nothing(frame: pd.DataFrame, time_column: str | None, message: str) -> None:
    with pytest.raises(InvalidWindowError, match=message) as caught:
        infer(frame, time_column)
    assert caught.value.hint


def test_an_empty_column_is_accepted_once_it_is_ignored() -> None:
    schema, _ = infer(pd.DataFrame({"x": [1], "void": [None]}), ignore=("void",))
    assert schema.names() == ["x"]


def test_nsl_kdd_has_three_categories_among_41_features(shared_data: Path) -> None:
    frame = pd.read_parquet(shared_data / "nsl-kdd" / "stream" / "2026-01-05.parquet")
    schema, warnings = infer(frame, "event_time", "label")
    assert len(schema.features) == 41
    assert schema.names("categorical") == ["protocol_type", "service", "flag"]
    assert warnings == []


def test_time_and_label_columns_come_from_the_configuration_but_are_never_features() -> None:
    schema = FeatureSchema(features=(Column(name="x", kind="numeric"),), label_column="old")
    assert with_columns(schema, time_column="t", label_column=None) == FeatureSchema(
        features=schema.features, time_column="t"
    )
    with pytest.raises(ConfigurationError, match="label_column is 'x'"):
        with_columns(schema, time_column=None, label_column="x")
    with pytest.raises(ConfigurationError, match="time_column is 'x'"):
        with_columns(schema, time_column="x", label_column=None)
