"""Files are read as what they say they are or refused, and a source's objects become ordered windows."""

import codecs
import csv as text_csv
import gzip
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local_store import LocalStore
from infra.object_store import ObjectStore
from infra.s3_store import S3Settings, S3Store, s3_client
from infra.source import Source
from infra.tables import SEPARATORS, CsvFormat, concatenate, read_table, to_frame
from s3_server import S3Server
from training.errors import ConfigurationError, InvalidWindowError, RetryableError

ANY = CsvFormat()


def frame_of(data: bytes, name: str = "w.csv", csv: CsvFormat = ANY, **options: Any) -> pd.DataFrame:  # noqa: ANN401
    return to_frame(read_table(name, data, csv, **options))


def parquet(**columns: Any) -> bytes:  # noqa: ANN401 - whatever pyarrow takes
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


# --- round trips ---

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=8
)
ROWS = st.lists(
    st.tuples(st.integers(-(2**53), 2**53), TEXTS, st.floats(allow_nan=False)), min_size=1, max_size=8
)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]


@given(
    rows=ROWS,
    header=st.lists(
        TEXTS.filter(lambda text: text.strip("\ufeff").strip()), min_size=3, max_size=3, unique=True
    ),
    separator=st.sampled_from(SEPARATORS),
    encoding=st.sampled_from(ENCODINGS),
    line_end=st.sampled_from(["\n", "\r\n"]),
    compressed=st.booleans(),
)
def test_csv_comes_back(  # noqa: PLR0913 - one argument for each way in which CSV files differ
    rows: list[tuple[int, str, float]],
    header: list[str],
    separator: str,
    encoding: str,
    line_end: str,
    *,
    compressed: bool,
) -> None:
    out = io.StringIO(newline="")
    writer = text_csv.writer(
        out, delimiter=separator, lineterminator=line_end, quoting=text_csv.QUOTE_NONNUMERIC
    )
    writer.writerows([header, *rows])
    data = out.getvalue().encode(encoding)
    name, data = ("w.CSV.gz", gzip.compress(data, mtime=0)) if compressed else ("w.csv", data)
    frame = frame_of(data, name, CsvFormat(separator=separator), strings=frozenset(header[1:2]))
    assert list(frame.columns) == header
    assert frame[header[0]].tolist() == [number for number, _, _ in rows]
    assert frame[header[1]].tolist() == [text or None for _, text, _ in rows]
    assert frame[header[2]].tolist() == [number for _, _, number in rows]


WORDS = st.sampled_from(["on", "off", "Größe", "naïve", "12.5 °C", "ポンプ", "насос", "NA", "a b", "x:y"])


@given(
    cells=st.lists(st.tuples(WORDS, st.integers(0, 9), WORDS), min_size=1, max_size=30),
    separator=st.sampled_from(SEPARATORS),
    encoding=st.sampled_from(ENCODINGS),
)
def test_the_separator_is_detected(cells: list[tuple[str, int, str]], separator: str, encoding: str) -> None:
    rows = [("name", "count", "unit"), *cells]
    text = "\n".join(separator.join(map(str, row)) for row in rows)
    frame = frame_of(text.encode(encoding), strings=frozenset({"name", "unit"}))
    assert list(frame.itertuples(index=False, name=None)) == cells


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("time;a;b\n2020-03-09 10:14:33;0,5;1,5\n2020-03-09 10:14:34;0,6;1,6\n", 3),
        ('a,b\n"x;y;z",1\n"x;y;z",2\n', 2),
        ("a\tb\n1, 2, 3\t4\n", 2),
        ("comment\nwell; nothing\n", 1),
        ("only\n1\n2\n", 1),
        ("a|b\n1|2", 2),
        ('a,b\n"two\nlines",1\n', 2),
    ],
)
def test_the_separator_of_awkward_files(text: str, width: int) -> None:
    assert len(frame_of(text.encode()).columns) == width


def test_a_decimal_comma_is_no_separator() -> None:
    frame = frame_of(b"a;b\n1,5;2,25\n", csv=CsvFormat(decimal=","))
    assert frame.iloc[0].tolist() == [1.5, 2.25]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("time,Größe,µm\n1,2,3\n", "cp1252"),
        ("Temp °C,b\n1,2\n", "latin-1"),
        ("name;preis €\nMüller;5\nSchön;6\n", "cp1252"),
        ("name,ville\nJosé,Orléans\nZoë,Besançon\nFrançois,Nîmes\n", "cp1252"),
        ("Имя,Город\nИван,Москва\nПётр,Казань\nАнна,Самара\n", "cp1251"),  # noqa: RUF001 - Russian
        ("名前,値\n東京,1\n大阪,2\nバルブ,3\nポンプ異常,4\n", "cp932"),
        ("a,b\n1,2\n3,4\n", "utf-16-le"),
        ("a,ü\n1,2\n3,4\n", "utf-16-be"),
    ],
)
def test_other_encodings_are_detected(text: str, encoding: str) -> None:
    expected = frame_of(text.encode())
    pd.testing.assert_frame_equal(frame_of(text.encode(encoding)), expected)
    pd.testing.assert_frame_equal(frame_of(text.encode(encoding), csv=CsvFormat(encoding=encoding)), expected)


def test_utf8_is_utf8_wherever_its_only_accent_is() -> None:
    text = "name,n\n" + "plain,1\n" * 50_000 + "Zoë,2\n"
    assert frame_of(text.encode())["name"].iloc[-1] == "Zoë"


@given(
    numbers=st.lists(st.none() | st.integers(-(2**53), 2**53), min_size=1),
    name=st.sampled_from(["w.parquet", "W.PARQUET"]),
)
def test_parquet_comes_back(numbers: list[int | None], name: str) -> None:
    texts = [None if number is None else f"«{number}»" for number in numbers]
    frame = frame_of(parquet(n=pa.array(numbers, pa.int64()), t=pa.array(texts, pa.string())), name)
    assert frame["t"].tolist() == texts
    assert [None if np.isnan(value) else int(value) for value in frame["n"].astype(float)] == numbers
    assert frame["n"].dtype == ("float64" if None in numbers else "int64")


# --- values ---

NOON = datetime(2026, 1, 5, 12)  # noqa: DTZ001 - naive on purpose


@pytest.mark.parametrize(
    ("column", "dtype", "values"),
    [
        (pa.array([1, 2], pa.uint8()), "uint8", [1, 2]),
        (pa.array([1, None]), "float64", [1.0, np.nan]),
        (pa.array([True, False]), "bool", [True, False]),
        (pa.array([True, None]), "float64", [1.0, np.nan]),
        (pa.array([Decimal("1.50"), None]), "float64", [1.5, np.nan]),
        (pa.nulls(2), "float64", [np.nan, np.nan]),
        (pa.array(["a", None]), "object", ["a", None]),
        (pa.array(["a", None], pa.large_string()), "object", ["a", None]),
        (pa.array(["a", None]).dictionary_encode(), "object", ["a", None]),
        (pa.array([3, None]).dictionary_encode(), "float64", [3.0, np.nan]),
        (pa.array([NOON] * 2, pa.timestamp("us")), "datetime64[us, UTC]", [NOON.replace(tzinfo=UTC)] * 2),
        (
            pa.array([NOON] * 2, pa.timestamp("ns", "Asia/Tokyo")),
            "datetime64[ns, UTC]",
            [NOON.replace(tzinfo=UTC)] * 2,
        ),
        (pa.array([date(2026, 1, 5)] * 2), "datetime64[s, UTC]", [datetime(2026, 1, 5, tzinfo=UTC)] * 2),
        (pa.array([[1], [2, 3]]), "object", None),
        (pa.array([{"a": 1}, None]), "object", None),
    ],
)
def test_to_frame(column: pa.Array, dtype: str, values: list[object] | None) -> None:
    series = to_frame(pa.table({"x": column}))["x"]
    assert str(series.dtype) == dtype
    if values is not None:
        pd.testing.assert_series_equal(series, pd.Series(values, dtype=dtype, name="x"))
        assert all(value is None or value == value for value in series) or dtype != "object"  # noqa: PLR0124 - NaN


def test_csv_text_is_kept_as_it_is_written() -> None:
    data = b"code,free,n\n080,NA,NA\n,,1\n0x1,x,\n"
    frame = frame_of(data, strings=frozenset({"code", "not there"}))
    assert frame["code"].tolist() == ["080", None, "0x1"]
    assert frame["free"].tolist() == ["NA", None, "x"]
    np.testing.assert_array_equal(frame["n"], [np.nan, 1.0, np.nan])


def test_a_column_of_no_text_is_text_if_it_is_known_as_such() -> None:
    frame = frame_of(b"code,n\n,1\n,2\n", strings=frozenset({"code"}))
    assert frame["code"].dtype == object
    assert frame["code"].tolist() == [None, None]


def test_a_column_turns_to_text_wherever_its_first_text_is() -> None:
    frame = frame_of(b"a,b\n" + b"1,2\n" * 400_000 + b"1.5,x\n")
    assert frame["a"].dtype == "float64"
    assert frame["b"].iloc[[0, -1]].tolist() == ["2", "x"]


def test_pandas_row_numbers_are_no_column() -> None:
    buffer = io.BytesIO()
    pd.DataFrame({"a": [1, 2]}, index=[5, 6]).to_parquet(buffer)
    frame = frame_of(buffer.getvalue(), "w.parquet")
    assert list(frame.columns) == ["a"]
    buffer = io.BytesIO()
    pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 6], name="hour")).to_parquet(buffer)
    frame = frame_of(buffer.getvalue(), "w.parquet")
    assert sorted(frame.columns) == ["a", "hour"]
    assert frame.index.equals(pd.RangeIndex(2))


# --- what is refused ---

GOOD_PARQUET = parquet(a=list(range(1000)))
GOOD_GZIP = gzip.compress(b"a,b\n" + b"1,2\n" * 500, mtime=0)


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("w.csv", b"", "no bytes"),
        ("w.parquet", b"", "no bytes"),
        ("w.csv.gz", b"", "no bytes"),
        ("w.csv.gz", gzip.compress(b"", mtime=0), "no text"),
        ("w.csv", b" \n\n", "no text"),
        ("w.csv", b"a,b\n", "no rows"),
        ("w.csv", b"a,b", "no rows"),
        ("w.parquet", parquet(a=pa.array([], pa.int64())), "no rows"),
        ("w.parquet", parquet(), "no columns"),
        ("w.csv", b"a,b\n1,2\n3\n", "separated by ','"),
        ("w.csv", b"a,b\n1,2\n3,4,5\n", "separated by ','"),
        ("w.csv", b"a;b\n1;2\n3\n", "separated by ';'"),
        ("w.csv", b'a,b\n1,"x\n2,y\n3,z\n', "separated by ','"),
        ("w.csv", b'a,b\n1,"x"y\n', "separated by ','"),
        ("w.csv", b"a,a\n1,2\n", "column names repeat: a"),
        ("w.csv", b"a,,c\n1,2,3\n", "column 2 is empty"),
        ("w.csv", b"a, \n1,2\n", "column 2 is empty"),
        ("w.csv.gz", GOOD_GZIP[:-10], "not whole gzip"),
        ("w.csv.gz", GOOD_GZIP[:12] + b"\xff\xff\xff" + GOOD_GZIP[15:], "not whole gzip"),
        ("w.csv.gz", b"a,b\n1,2\n", "not whole gzip"),
        ("w.parquet", GOOD_PARQUET[:-20], "truncated or damaged"),
        ("w.parquet", GOOD_PARQUET[:6], "truncated or damaged"),
        ("w.parquet", GOOD_PARQUET[:100] + b"\xff" * 200 + GOOD_PARQUET[300:], "truncated or damaged"),
        ("w.parquet", b"a,b\n1,2\n", "not Parquet"),
        ("w.parquet", GOOD_GZIP, "not Parquet"),
        ("w.csv", GOOD_PARQUET, "not the text"),
        ("w.csv", GOOD_GZIP, "not the text"),
        ("w.csv.gz", gzip.compress(GOOD_PARQUET, mtime=0), "not the text"),
        ("w.csv", b"a,b\n1,\0\n", "w.csv"),
        ("w.csv", bytes(range(256)) * 20, "w.csv"),
        ("w.csv", "name,n\nZoë,1\nJosé,2".encode()[:-3], "not valid utf-8"),
        ("w.csv", "n,name\n1,é".encode()[:-1], "not valid utf-8"),
        ("w.csv", b"n,name\n1,Zo\xc3\xab\n2,Jos\xe9\n", "not valid utf-8"),
        ("w.csv", codecs.BOM_UTF16_LE + "a,b\n1,2\n".encode("utf-16-le")[:-1], "not valid utf-16"),
        ("w.txt", b"a,b\n1,2\n", "no known format"),
    ],
)
def test_a_bad_object_is_refused_by_name(name: str, data: bytes, what: str) -> None:
    with pytest.raises(InvalidWindowError) as caught:
        read_table(name, data, ANY)
    assert name in caught.value.message
    assert what in caught.value.message
    assert "Allowed" in caught.value.hint


@given(position=st.integers(0, len(GOOD_PARQUET) - 1), value=st.integers(0, 255))
def test_damaged_parquet_is_a_table_or_refused(position: int, value: int) -> None:
    damaged = bytearray(GOOD_PARQUET)
    damaged[position] = value
    try:
        read_table("w.parquet", bytes(damaged), ANY)
    except InvalidWindowError as error:
        assert "w.parquet" in error.message  # noqa: PT017 - most damage is refused, some is harmless


def test_duplicate_parquet_columns_are_refused() -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), buffer)
    with pytest.raises(InvalidWindowError, match="repeat: a"):
        read_table("w.parquet", buffer.getvalue(), ANY)


@pytest.mark.parametrize(
    "options",
    [{"separator": ";;"}, {"separator": '"'}, {"separator": "."}, {"encoding": "utf-9"}, {"decimal": "·"}],
)
def test_a_bad_csv_format_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="The CSV"):
        CsvFormat(**options)


# --- parts ---


def test_parts_widen_to_one_type() -> None:
    one = pa.table({"n": [1], "t": pa.nulls(1), "d": pa.array(["x"]).dictionary_encode(), "w": [NOON]})
    two = pa.table({"w": [NOON.replace(tzinfo=UTC)], "t": ["a"], "d": ["y"], "n": [2.5]})
    frame = to_frame(concatenate([("1", one), ("2", two)]))
    assert list(frame.columns) == ["n", "t", "d", "w"]
    assert frame["n"].tolist() == [1.0, 2.5]
    assert frame["t"].tolist() == [None, "a"]
    assert frame["d"].tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ({"a": [1]}, r"missing: \['b'\]"),
        ({"a": [1], "b": [1], "c": [1]}, r"more: \['c'\]"),
        ({"a": ["x"], "b": [1]}, "types"),
    ],
)
def test_parts_that_differ_are_refused_by_name(second: dict[str, list[object]], what: str) -> None:
    with pytest.raises(InvalidWindowError, match=what) as caught:
        concatenate([("first", pa.table({"a": [1], "b": [1]})), ("second", pa.table(second))])
    assert "second" in caught.value.message


# --- sources ---


def source_of(store: ObjectStore, **objects: bytes) -> Source:
    for key, data in objects.items():
        store.write(key, data)
    return Source(store, ANY)


def fill(folder: Path, *keys: str) -> Source:
    return source_of(LocalStore(folder), **dict.fromkeys(keys, b"a\n1\n"))


def test_windows_are_in_natural_order(tmp_path: Path) -> None:
    source = fill(
        tmp_path,
        "w10.csv",
        "w2.csv.gz",
        "w2b.PARQUET",
        "W1.csv",
        "w002.csv",
        "d=9/p10.csv",
        "d=9/p9.csv",
        "d=10/x/1.csv",
    )
    windows = source.windows()
    assert [window.id for window in windows] == ["W1", "d=9", "d=10/x", "w002", "w2", "w2b", "w10"]
    assert [item.key for item in windows[1].objects] == ["d=9/p9.csv", "d=9/p10.csv"]


def test_what_is_not_data_is_ignored(tmp_path: Path) -> None:
    source = fill(
        tmp_path,
        "w.csv",
        "_SUCCESS",
        ".w.csv.swp",
        "_logs/w.csv",
        "d/.hidden/w.csv",
        "d/_w.csv",
        "notes.txt",
        "d/w.json",
    )
    assert [window.id for window in source.windows()] == ["w"]
    assert source.ignored == ["d/w.json", "notes.txt"]


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ([], "is empty"),
        (
            ["_SUCCESS", "a.txt", "b.txt", "c.txt"],
            r"only ignored objects \(_SUCCESS, a.txt, b.txt and 1 more\)",
        ),
    ],
)
def test_a_source_without_windows_says_why(tmp_path: Path, keys: list[str], what: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        fill(tmp_path, *keys).windows()
    assert ".parquet" in caught.value.hint


def test_a_source_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        Source(LocalStore(tmp_path / "absent"), ANY).windows()


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (("2026-01-05.csv", "2026-01-05.parquet"), "2026-01-05.csv and 2026-01-05.parquet"),
        (("d/1.csv", "d/1.csv.gz"), "d/1.csv and d/1.csv.gz"),
        (("2026-01-05.csv", "2026-01-05/part.csv"), "2026-01-05.csv and 2026-01-05/"),
        (
            ("2026-01-05.parquet", "2026-01-05/1/part.csv", "2026-01-05/2.csv"),
            "2026-01-05.parquet and 2026-01-05/",
        ),
    ],
)
def test_one_id_stands_for_one_object(tmp_path: Path, keys: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fill(tmp_path, *keys).windows()
    assert named in caught.value.message


def test_a_window_is_the_rows_of_its_parts(tmp_path: Path) -> None:
    objects = {"d/1.csv": b"code,n\n080,1\n", "d/2.csv": b"code,n\n", "d/10.csv": b"n;code\n3;081\n4;082\n"}
    source = source_of(LocalStore(tmp_path), **objects)
    (window,) = source.windows()
    frame = source.read(window, frozenset({"code"}))
    assert frame["code"].tolist() == ["080", "081", "082"]
    assert frame["n"].tolist() == [1, 3, 4]
    assert frame.index.equals(pd.RangeIndex(3))
    assert source.read(window)["code"].tolist() == [80, 81, 82]


def test_a_window_without_any_row_is_refused(tmp_path: Path) -> None:
    source = source_of(LocalStore(tmp_path), **{"d/1.csv": b"a\n", "d/2.csv": b"a\n"})
    with pytest.raises(InvalidWindowError, match="Window d holds no rows"):
        source.read(source.windows()[0])


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "local":
        return LocalStore(tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    s3_client.cache_clear()
    return S3Store(server.bucket, f"source/{tmp_path.name}", S3Settings())


def test_a_window_that_moves_under_the_reader_is_worth_a_retry(store: ObjectStore) -> None:
    source = source_of(store, **{"w.csv": b"a\n1\n", "v.csv": b"a\n1\n"})
    old = source.windows()[1]
    assert source.read(old)["a"].tolist() == [1]
    store.write("w.csv", b"a\n2\n")
    with pytest.raises(RetryableError, match="changed after it was listed"):
        source.read(old)
    new = source.windows()[1]
    assert source.read(new)["a"].tolist() == [2]
    assert new.fingerprint != old.fingerprint
    if isinstance(store, LocalStore):
        (store.folder / "w.csv").unlink()
    else:
        assert isinstance(store, S3Store)
        s3_client(store.settings).delete_object(Bucket=store.bucket, Key=f"{store.prefix}/w.csv")
    with pytest.raises(RetryableError, match="vanished"):
        source.read(new)


# --- real data ---


def test_the_pump_bench_is_read(shared_data: Path) -> None:
    source = Source(LocalStore(shared_data / "skab"), ANY)
    windows = source.windows()
    assert [window.id for window in windows][:3] == ["anomaly-free", "valve1-0", "valve1-1"]
    for window in windows:
        frame = source.read(window)
        lines = (shared_data / "skab" / f"{window.id}.csv").read_text().splitlines()
        assert len(frame) == len(lines) - 1
        assert list(frame.columns) == lines[0].split(";")
        assert str(frame["datetime"].dtype) == "datetime64[s, UTC]"
        assert all(dtype == "float64" for dtype in frame.dtypes.iloc[1:])


def test_the_network_stream_is_read(shared_data: Path) -> None:
    source = Source(LocalStore(shared_data / "nsl-kdd" / "stream"), ANY)
    windows = source.windows()
    assert len(windows) == 12
    assert windows[0].id == "2026-01-05"
    frame = source.read(windows[0])
    assert len(frame.columns) == 43
    assert frame["protocol_type"].dtype == object
    assert set(frame["protocol_type"]) == {"tcp", "udp", "icmp"}
    assert isinstance(frame["event_time"].dtype, pd.DatetimeTZDtype)
    assert 0 < frame["label"].mean() < 0.05
