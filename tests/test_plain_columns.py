"""However a file types and cuts its rows, they get the same features to the bit, and the same errors.

Scores too, but for a cut: ONNX Runtime rounds a row's score by where it stands among those of one run.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts import SCHEMA, build_artifact, normal_rows, training_request
from monitoring.frames import clean_frame
from monitoring.plain_columns import encode_batch
from training.encoding import ROWS_PER_BLOCK
from training.errors import InvalidWindowError
from training.scorer import ROWS_PER_CALL, ROWS_PER_RUN, Scorer

NUMBERS = (
    pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(),
    pa.decimal128(9, 3), pa.dictionary(pa.int8(), pa.int64()),
)  # fmt: skip
TEXTS = (
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
)  # fmt: skip
NAMES = SCHEMA.names()


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("columns") / "artifact"
    build_artifact(folder, training_request())
    return Scorer.load(folder)


def column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_decimal(kind):
        values = [None if value is None else Decimal(int(str(value))) for value in values]
    if pa.types.is_boolean(kind):
        values = [None if value is None else bool(value) for value in values]
    return pa.array(values, kind)


ROWS = st.lists(
    st.tuples(*[st.sampled_from([0, 1, None])] * 3, st.sampled_from(["north", "south", "", "zürich", None])),
    min_size=1,
    max_size=40,
)


@given(
    ROWS,
    st.tuples(*[st.sampled_from(NUMBERS)] * 3, st.sampled_from(TEXTS)),
    st.permutations(NAMES),
    st.integers(1, 40),
)
def test_types_order_and_cuts_change_no_score(
    scorer: Scorer, rows: list[tuple[object, ...]], kinds: tuple[pa.DataType, ...], order: list[str], cut: int
) -> None:
    known = clean_frame(pd.DataFrame(rows, columns=NAMES, dtype=object), SCHEMA)
    values = dict(zip(NAMES, map(column, zip(*rows, strict=True), kinds), strict=True))
    table = pa.table({name: values[name] for name in order})
    (whole,) = table.to_batches()
    np.testing.assert_array_equal(scorer.score_features(encode_batch(whole, scorer)), scorer.score(known))
    parts = [encode_batch(batch, scorer) for batch in table.to_batches(max_chunksize=cut)]
    features = np.concatenate(parts)
    np.testing.assert_array_equal(features, scorer.preprocessing.transform(known))
    scores = np.concatenate([scorer.score_features(part) for part in parts])
    np.testing.assert_allclose(scores, scorer.score(known), rtol=1e-5, atol=1e-6)


def test_rows_on_either_side_of_a_cut_get_what_they_get_alone(scorer: Scorer) -> None:
    rows = normal_rows(ROWS_PER_CALL + 3, seed=5)
    scores, features = scorer.score(rows), scorer.preprocessing.transform(rows)
    edges = [cut + side for cut in (ROWS_PER_BLOCK, ROWS_PER_RUN, ROWS_PER_CALL) for side in (-1, 0, 1)]
    for row in (0, *edges, len(rows) - 1):
        alone = rows.iloc[[row]]
        np.testing.assert_array_equal(scorer.preprocessing.transform(alone)[0], features[row])
        np.testing.assert_allclose(scorer.score(alone), scores[row], rtol=1e-5, atol=1e-6)


WRONG: dict[str, tuple[pa.Array, str]] = {
    "text": (pa.array(["1", "2"]), "'level' is numeric but holds text such as '1'"),
    "times": (pa.array([1, 2], pa.timestamp("s")), "'level' is numeric but holds timestamps"),
    "lists": (pa.array([[1], [2]]), "'level' is numeric but holds mixed values"),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_kind_is_the_error_of_clean_frame(scorer: Scorer, case: str) -> None:
    values, said = WRONG[case]
    batch = pa.RecordBatch.from_pandas(normal_rows(2)).drop_columns("level").append_column("level", values)
    with pytest.raises(InvalidWindowError, match=said) as caught:
        encode_batch(batch, scorer)
    with pytest.raises(InvalidWindowError) as expected:
        clean_frame(batch.to_pandas(), SCHEMA)
    assert str(caught.value) == str(expected.value)


def test_numbers_among_categories_repeated_and_missing_features_are_refused(scorer: Scorer) -> None:
    batch = pa.RecordBatch.from_pandas(normal_rows(2))
    pumps = batch.drop_columns("pump").append_column("pump", pa.array([1, 2]))
    with pytest.raises(InvalidWindowError, match="'pump' is categorical but holds numbers such as 1"):
        encode_batch(pumps, scorer)
    with pytest.raises(InvalidWindowError, match="'flow' stands in the rows 2 times"):
        encode_batch(batch.append_column("flow", batch["flow"]), scorer)
    with pytest.raises(InvalidWindowError, match="'flow' is missing in the rows"):
        encode_batch(batch.drop_columns("flow"), scorer)


def test_text_that_is_not_utf_8_is_refused(scorer: Scorer) -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"ok"]).buffers())
    batch = pa.RecordBatch.from_pandas(normal_rows(2)).drop_columns("pump").append_column("pump", broken)
    with pytest.raises(InvalidWindowError, match="'pump' is categorical but holds text that is not UTF-8"):
        encode_batch(batch, scorer)


def test_a_dictionary_that_repeats_a_text_and_holds_a_null_is_read(scorer: Scorer) -> None:
    batch = pa.RecordBatch.from_pandas(normal_rows(4, seed=3)).drop_columns("pump")
    odd = pa.DictionaryArray.from_arrays([0, 1, 2, None], pa.array(["south", "south", None]))
    plain = pa.array(["south", "south", None, None])
    read, expected = (
        scorer.score_features(encode_batch(batch.append_column("pump", pump), scorer))
        for pump in (odd, plain)
    )
    np.testing.assert_array_equal(read, expected)
