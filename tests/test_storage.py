"""Rows and checkpoints on disk and on S3: whole, one data set, and never silently wrong."""

import errno
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from s3_server import S3Server
from training import dataset
from training.checkpoint import Checkpoint, Checkpoints, Progress
from training.dataset import open_rows, read_range, read_shard
from training.errors import ConfigurationError, InvalidWindowError, RetryableError
from training.storage import Place

SHAPES = [(200, 30)]


@pytest.fixture(params=["disk", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "disk":
        return Place.at(tmp_path / "home")
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return Place.at(f"s3://{server.bucket}/{tmp_path.name}")


def put_rows(home: Place, rows: pd.DataFrame, tmp_path: Path) -> None:
    for part in range(11):
        path = tmp_path / "part.parquet"
        rows.iloc[part::11].to_parquet(path, row_group_size=7, index=False)
        home.child(f"part-{part}.parquet").write(path.read_bytes())


def test_a_folder_of_files_is_one_data_set_in_natural_order(home: Place, tmp_path: Path) -> None:
    frame = pd.DataFrame({"row": np.arange(330), "x": 0.5})
    put_rows(home, frame, tmp_path)
    home.child("_SUCCESS").write(b"no rows")
    rows = open_rows(home.url)
    assert (rows.rows, len(rows.files)) == (330, 11)
    expected = [row for part in range(11) for row in range(part, 330, 11)]
    assert read_range(home.url, ["row"], 0, 330)["row"].tolist() == expected
    assert read_range(home.url, ["row"], 25, 101)["row"].tolist() == expected[25:101]
    assert read_shard([home.url], ["row"], 1, 3)["row"].tolist() == expected[1::3]


def test_the_last_two_checkpoints_are_kept_and_a_damaged_one_costs_no_more_than_the_one_before(
    home: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(place=home.child("r"), request_id="r", fits="f")
    for epoch in range(1, 5):
        state = [np.full(SHAPES[0], float(epoch))]
        checkpoints.write(Checkpoint(progress=Progress(epoch=epoch), state=state, best=[]))
    names = [place.name for place in home.child("r").files()]
    assert names == [f"00000{epoch}-000000000000.checkpoint" for epoch in (3, 4)]
    newest = checkpoints.newest(SHAPES)
    assert newest is not None
    assert (newest.progress.epoch, newest.state[0][0, 0]) == (4, 4.0)
    content = home.child("r").child(names[1]).read()
    for damaged in (content[:200], content[:-1], content[:-9] + b"X" + content[-8:], b""):
        home.child("r").child(names[1]).write(damaged)
        newest = checkpoints.newest(SHAPES)
        assert newest is not None
        assert newest.progress.epoch == 3
        assert f"{names[1]} is passed over: " in capsys.readouterr().err
    assert checkpoints.newest([(1, 1)]) is None
    for request, fits in (("other", "f"), ("r", "other data")):
        assert Checkpoints(place=home.child("r"), request_id=request, fits=fits).newest(SHAPES) is None
    checkpoints.remove()
    assert checkpoints.newest(SHAPES) is None


def test_what_cannot_be_reached_is_never_read_as_nothing_there(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{s3_server.bucket}/nothing"
    with pytest.raises(InvalidWindowError, match=f"there is no Parquet file at {url}"):
        open_rows(url)
    lost = f"s3://{s3_server.bucket}-that-is-not-there"
    for gone in (lost, f"{lost}/checkpoints"):
        with pytest.raises(ConfigurationError, match=f"{gone} cannot be reached: .*NO_SUCH_BUCKET"):
            open_rows(gone)
        with pytest.raises(ConfigurationError, match="NO_SUCH_BUCKET"):
            Checkpoints(place=Place.at(gone), request_id="r", fits="f").newest(SHAPES)
        with pytest.raises(ConfigurationError, match="NO_SUCH_BUCKET"):
            Place.at(gone).child("form.json").write(b"{}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ConfigurationError, match=r"ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH"):
        Checkpoints(place=Place.at(url), request_id="r", fits="f").newest(SHAPES)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RetryableError, match=f"{url} cannot be reached"):
        Checkpoints(place=Place.at(url), request_id="r", fits="f").newest(SHAPES)


@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_a_file_that_lost_its_end_is_named(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": np.random.default_rng(0).normal(size=5_000)}).to_parquet(path)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(InvalidWindowError, match=r"rows\.parquet is no readable Parquet file"):
        open_rows(path)


def test_a_disk_that_cannot_be_read_is_no_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": [1.0]}).to_parquet(path)
    with (
        pytest.raises(RetryableError, match=r"rows\.parquet cannot be reached: .*Stale file handle"),
        dataset._parquet(Place.at(path)),  # noqa: SLF001 - no test can make a disk fail
    ):
        raise OSError(errno.ESTALE, "Stale file handle")


def test_files_with_other_columns_do_not_go_together(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"y": [1.0]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidWindowError, match=r"b\.parquet has other columns than .*a\.parquet: x, y"):
        open_rows(tmp_path)
