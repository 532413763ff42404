"""`floodmark score`: what it adds, that its parts agree with the whole, and what it refuses."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts import normal_rows
from champions import champion_home
from command import floodmark
from flows.installation import Champion, Installation
from flows.score import ADDED, Scored, score_file
from infra.parquet_batches import ROWS_PER_BATCH
from infra.settings import load_settings
from infra.tables import CsvFormat
from training.errors import ConfigurationError, InvalidWindowError

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return champion_home(tmp_path_factory.mktemp("score"))


@pytest.fixture(scope="module")
def champion(home: Path) -> Champion:
    return Installation(load_settings(None, {"home": home})).champion("1")


def scored(champion: Champion, source: Path, out: Path, *, force: bool = False) -> Scored:
    return score_file(champion, source, out, CsvFormat(), force=force)


def test_rows_in_many_batches_get_the_scores_of_the_whole(champion: Champion, tmp_path: Path) -> None:
    rows = normal_rows(ROWS_PER_BATCH + 1_000, seed=7).assign(label=1, note="kept")
    rows.to_parquet(tmp_path / "in.parquet", row_group_size=10_000)
    counted = scored(champion, tmp_path / "in.parquet", tmp_path / "out.parquet")
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column_names == [*rows.columns, *ADDED]
    pd.testing.assert_frame_equal(written.select(list(rows.columns)).to_pandas(), rows)
    frame = written.to_pandas()
    np.testing.assert_allclose(frame["anomaly_score"], champion.scorer.score(rows), rtol=1e-6)
    threshold = champion.scorer.threshold.value
    assert (frame["threshold"] == threshold).all()
    assert (frame["is_anomaly"] == (frame["anomaly_score"] > threshold)).all()
    assert (frame["model_version"] == "1").all()
    assert counted == Scored(rows=len(rows), alerts=int(frame["is_anomaly"].sum()))


def test_a_false_discovery_rate_is_that_of_the_whole_file(champion: Champion, tmp_path: Path) -> None:
    """Of normal rows alone next to none stands out; of anomalies among them nearly all, and few others."""
    normal = normal_rows(4_000, seed=8)
    odd = normal_rows(200, seed=9, shift=3.0)
    mixed = pd.concat([normal, odd], ignore_index=True)
    for name, rows in (("normal", normal), ("mixed", mixed)):
        rows.to_parquet(tmp_path / f"{name}.parquet", row_group_size=500)
        score_file(
            champion,
            tmp_path / f"{name}.parquet",
            tmp_path / f"{name}-out.parquet",
            CsvFormat(),
            force=False,
            false_discovery_rate=0.1,
        )
    quiet = pd.read_parquet(tmp_path / "normal-out.parquet")
    assert quiet["is_anomaly"].mean() < 0.005
    found = pd.read_parquet(tmp_path / "mixed-out.parquet")
    assert len(set(found["threshold"])) == 1
    assert (found["is_anomaly"] == (found["anomaly_score"] > found["threshold"])).all()
    assert found["is_anomaly"][len(normal) :].mean() > 0.9
    assert 0 < found["is_anomaly"][: len(normal)].sum() / found["is_anomaly"].sum() < 0.25


def test_columns_that_are_no_features_come_out_as_they_went_in(champion: Champion, tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pandas(normal_rows(300), preserve_index=False)
    for name, values in {
        "list": pa.array([["a"], None, []] * 100),
        "struct": pa.array([{"a": 1, "b": "x"}] * 300),
        "words": pa.array(["x", "y", None] * 100).dictionary_encode(),
        "nothing": pa.nulls(300),
        "bytes": pa.array([b"\xff"] * 300),
    }.items():
        rows = rows.append_column(name, values)
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "in.parquet")
    scored(champion, tmp_path / "in.parquet", tmp_path / "out.parquet")
    written = pq.read_table(tmp_path / "out.parquet").select(rows.schema.names)
    assert written.equals(pa.Table.from_batches([rows]))


def test_only_values_that_repeat_are_written_with_a_dictionary(champion: Champion, tmp_path: Path) -> None:
    normal_rows(3_000).to_parquet(tmp_path / "in.parquet")
    scored(champion, tmp_path / "in.parquet", tmp_path / "out.parquet")
    with pq.ParquetFile(tmp_path / "out.parquet") as file:
        group = file.metadata.row_group(0)
        chunks = [group.column(position) for position in range(group.num_columns)]
    plain = {chunk.path_in_schema for chunk in chunks if not chunk.has_dictionary_page}
    assert plain == {
        "at",
        "flow",
        "level",
        "anomaly_score",
        "is_anomaly",
    }  # Parquet never has one of booleans


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_csv_comes_in_and_goes_out(champion: Champion, tmp_path: Path, suffix: str) -> None:
    rows = normal_rows(300, seed=8)
    rows.to_csv(tmp_path / f"in{suffix}", index=False)
    scored(champion, tmp_path / f"in{suffix}", tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(written["anomaly_score"], champion.scorer.score(rows), rtol=1e-6)


Change = Callable[[pd.DataFrame], pd.DataFrame]
BROKEN: dict[str, tuple[Change, str]] = {
    "a column gone": (lambda rows: rows.drop(columns="level"), "'level'"),
    "text among numbers": (lambda rows: rows.assign(level="high"), "'level' is numeric but holds text"),
    "no rows": (lambda rows: rows.iloc[:0], "no rows"),
    "a column of ours": (lambda rows: rows.assign(threshold=1.0), "columns named threshold"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_scored_leaves_no_file(champion: Champion, tmp_path: Path, case: str) -> None:
    change, said = BROKEN[case]
    change(normal_rows(300)).to_parquet(tmp_path / "in.parquet")
    with pytest.raises(InvalidWindowError, match=said):
        scored(champion, tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_file_that_is_damaged_further_on_leaves_no_file_either(champion: Champion, tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    normal_rows(2 * ROWS_PER_BATCH).to_parquet(path, row_group_size=ROWS_PER_BATCH)
    with pq.ParquetFile(path) as file:
        start = file.metadata.row_group(1).column(0).data_page_offset
    data = path.read_bytes()
    path.write_bytes(data[:start] + bytes(4_096) + data[start + 4_096 :])
    with pytest.raises(InvalidWindowError, match="damaged"):
        scored(champion, path, tmp_path / "out.parquet")
    assert [found.name for found in tmp_path.iterdir()] == ["in.parquet"]


def test_nothing_is_overwritten_unless_forced(champion: Champion, tmp_path: Path) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    normal_rows(300).to_parquet(source)
    out.write_text("a person's work")
    with pytest.raises(ConfigurationError, match="exists already"):
        scored(champion, source, out)
    assert out.read_text() == "a person's work"
    assert scored(champion, source, out, force=True).rows == 300
    with pytest.raises(ConfigurationError, match="is the input"):
        scored(champion, source, source, force=True)


@pytest.mark.parametrize(
    ("source", "out", "said"),
    [
        ("gone.parquet", "out.parquet", "there is no file"),
        ("in.txt", "out.parquet", "is no .parquet"),
        ("in.parquet", "out.xlsx", "must end in"),
        ("in.parquet", "no folder/out.parquet", "there is no folder"),
    ],
)
def test_wrong_paths(champion: Champion, tmp_path: Path, source: str, out: str, said: str) -> None:
    normal_rows(300).to_parquet(tmp_path / "in.parquet")
    (tmp_path / "in.txt").write_text("x")
    with pytest.raises(ConfigurationError, match=said):
        scored(champion, tmp_path / source, tmp_path / out)


def test_the_score_command(home: Path, tmp_path: Path) -> None:
    normal_rows(400, seed=9).to_parquet(tmp_path / "in.parquet")
    run = floodmark("score", "in.parquet", "--out", "out.parquet", "--home", home, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("out.parquet: 400 rows scored by version 1, ")
