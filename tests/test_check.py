"""`floodmark check` and `floodmark contract` against a real champion: and nothing changes."""

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
from flows.check import WindowCheck, check_window, described_check
from flows.cli import app
from flows.installation import Installation
from infra.contract_file import read_contract
from infra.settings import load_settings
from monitoring.history import History
from monitoring.verdicts import DriftStatus
from training.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

Change = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return champion_home(tmp_path_factory.mktemp("check"))


@pytest.fixture
def installation(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.chdir(tmp_path)
    return Installation(load_settings(None, {"home": home, "time_column": "at"}))


def checked(installation: Installation, source: Path, window: str | None = None) -> WindowCheck:
    return check_window(installation, installation.ledger.load(), str(source), window)


def files(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in folder.rglob("*") if path.is_file()}


def test_a_valid_window_is_stable_and_nothing_is_written(
    installation: Installation, home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "window.parquet"
    normal_rows(2_000, seed=9).to_parquet(path, row_group_size=300)
    checked(installation, path)
    before = files(home)
    found = checked(installation, path)
    assert found.findings == []
    assert found.drift is not None
    assert found.drift.status is DriftStatus.STABLE
    assert found.passed
    assert found.alert_rate == pytest.approx(0.05, abs=0.03)
    assert (found.window_id, found.rows, found.sampled) == ("window", 2_000, 2_000)
    assert files(home) == before


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_newest_window_of_a_folder_is_taken(
    installation: Installation, tmp_path: Path, suffix: str
) -> None:
    for day, shift in (("day-2", 0.0), ("day-10", 4.0)):
        rows = normal_rows(600, seed=3)
        rows["level"] += shift
        if suffix == "csv":
            rows.to_csv(tmp_path / f"{day}.csv", index=False)
            continue
        (tmp_path / day).mkdir()
        rows.iloc[:400].to_parquet(tmp_path / day / "part-0.parquet")
        rows.iloc[400:].to_parquet(tmp_path / day / "part-1.parquet")
    found = checked(installation, tmp_path)
    assert (found.window_id, found.rows) == ("day-10", 600)
    assert found.drift is not None
    assert found.drift.status is DriftStatus.DRIFTED
    assert found.drift.drifted_columns[0] == "level"
    assert not found.passed
    assert any(line.startswith("DRIFTED: ") for line in described_check(found))
    earlier = checked(installation, tmp_path, "day-2")
    assert (earlier.window_id, earlier.passed) == ("day-2", True)
    with pytest.raises(ConfigurationError, match=r"no window 'day-3'; it has 2, from day-2 to day-10"):
        checked(installation, tmp_path, "day-3")


def in_two_zones(rows: pd.DataFrame) -> pd.DataFrame:
    """Write every other time in another offset."""
    texts = [
        at.tz_convert("UTC" if place % 2 else "Asia/Tokyo").isoformat() for place, at in enumerate(rows["at"])
    ]
    return rows.assign(at=texts)


def twice(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([rows, rows[["level"]]], axis=1)


BAD: list[tuple[str, Change, str | None, str, str]] = [
    ("all missing", lambda rows: rows.assign(level=np.nan), "level", "all_missing", "quarantine"),
    ("empty", lambda rows: rows.iloc[:0], None, "no_rows", "quarantine"),
    ("text", lambda rows: rows.assign(level=rows["level"].astype(str)), "level", "retyped", "quarantine"),
    ("nullable integers", lambda rows: rows.astype({"pressure": "Int64"}), None, "", ""),
    ("gone", lambda rows: rows.drop(columns="level"), "level", "missing_columns", "quarantine"),
    ("infinite", lambda rows: rows.assign(level=np.inf), "level", "infinite_values", "quarantine"),
    ("outlier", lambda rows: rows.assign(level=[1e9, *rows["level"][1:]]), "level", "ranges", "warn"),
    ("constant", lambda rows: rows.assign(flow=10.0), "flow", "constant_columns", "warn"),
    ("categories", lambda rows: rows.assign(pump=rows["level"].astype(str)), "pump", "unseen", "warn"),
    ("tiny variance", lambda rows: rows.assign(level=5 + 1e-9 * rows["level"]), "level", "", ""),
    ("column twice", twice, "level", "repeated_columns", "quarantine"),
    ("bytes", lambda rows: rows.assign(pump=b"\xff"), "pump", "retyped", "quarantine"),
    ("twice", lambda rows: rows.iloc[[*range(len(rows) // 2)] * 2], None, "duplicated", "quarantine"),
    ("time zones", in_two_zones, "at", "mixed_offsets", "warn"),
    ("no times", lambda rows: rows.assign(at="soon"), "at", "event_times", "quarantine"),
]


@pytest.mark.parametrize("case", BAD, ids=[case[0] for case in BAD])
def test_a_bad_column_is_named_and_the_others_are_as_ever(
    installation: Installation, tmp_path: Path, case: tuple[str, Change, str | None, str, str]
) -> None:
    _, change, column, check, severity = case
    rows = change(normal_rows(2_500, seed=5))
    columns = [pa.array(rows.iloc[:, place], from_pandas=True) for place in range(rows.shape[1])]
    # pandas writes no column twice.
    pq.write_table(pa.Table.from_arrays(columns, names=list(rows)), tmp_path / "window.parquet")
    found = checked(installation, tmp_path / "window.parquet")
    told = [(item.column, item.severity) for item in found.findings]
    assert told == ([(column, severity)] if check else [])
    assert all(item.check.startswith(check) for item in found.findings)
    assert (found.drift is None) == (severity == "quarantine")
    if found.drift is not None:  # the others are judged by their own values
        assert set(found.drift.drifted_columns) <= {column}
        if column is not None and not check:  # valid, and another column than before
            assert list(found.drift.drifted_columns) == [column]


def test_times_keep_their_offsets_in_csv(installation: Installation, tmp_path: Path) -> None:
    in_two_zones(normal_rows(400, seed=5)).to_csv(tmp_path / "window.csv", index=False)
    found = checked(installation, tmp_path / "window.csv")
    assert [item.check for item in found.findings] == ["mixed_offsets"]
    assert found.passed


def test_a_missing_file_is_no_missing_folder(installation: Installation, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no file .*gone\.csv"):
        checked(installation, tmp_path / "gone.csv")


def test_one_file_is_checked_whatever_lies_beside_it(installation: Installation, tmp_path: Path) -> None:
    normal_rows(400, seed=5).to_csv(tmp_path / "window.CSV", index=False)
    (tmp_path / "window.parquet").write_bytes(b"another window of the same name")
    found = checked(installation, tmp_path / "window.CSV")
    assert (found.window_id, found.findings, found.rows) == ("window", [], 400)
    (tmp_path / "notes.txt").write_text("no data")
    with pytest.raises(ConfigurationError, match=r"notes.txt is no .parquet, .csv or .csv.gz"):
        checked(installation, tmp_path / "notes.txt")


def test_a_damaged_file_is_a_finding(installation: Installation, tmp_path: Path) -> None:
    path = tmp_path / "window.parquet"
    normal_rows(400).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-50])
    found = checked(installation, path)
    assert [(item.check, item.severity) for item in found.findings] == [("unreadable", "quarantine")]
    assert "truncated or damaged" in described_check(found)[1]


def test_a_contract_makes_of_a_warning_a_quarantine(
    home: Path, installation: Installation, tmp_path: Path
) -> None:
    rows = normal_rows(400, seed=5)
    rows.assign(pump="east").to_parquet(tmp_path / "window.parquet")
    assert checked(installation, tmp_path / "window.parquet").drift is not None
    (tmp_path / "floodmark.toml").write_text('[quality]\ncontract = "contract.yaml"')
    (tmp_path / "contract.yaml").write_text("columns: {pump: {checks: {unseen_categories: quarantine}}}")
    strict = Installation(load_settings(None, {"home": home, "time_column": "at"}))
    found = checked(strict, tmp_path / "window.parquet")
    assert ("unseen_categories", "quarantine") in [(item.check, item.severity) for item in found.findings]
    assert found.drift is None


def test_without_a_champion_the_next_command_is_named(installation: Installation, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no champion yet") as error:
        check_window(installation, History(), str(tmp_path))
    assert "floodmark run" in error.value.hint


def test_the_check_command(home: Path, tmp_path: Path) -> None:
    rows = normal_rows(400, seed=5)
    rows.drop(columns="level").to_parquet(tmp_path / "window.parquet")
    where: list[str | Path] = ["--home", home, "--time-column", "at"]
    done = floodmark("check", "window.parquet", *where, "--strict", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert "quarantine  missing_columns: the feature 'level' is missing from the window" in done.stdout
    done = floodmark("check", ".", *where, "--window", "gone", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no window 'gone'" in done.stderr


def test_the_contract_command_writes_a_new_file_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("PREFECT_SERVER_ANALYTICS_ENABLED", "DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(variable, "true")  # the command sets them for good
    app(["contract", "--home", str(home), "--out", "contract.yaml"], standalone_mode=False)
    assert list(read_contract(tmp_path / "contract.yaml").columns) == ["pressure", "flow", "level", "pump"]
    before = (tmp_path / "contract.yaml").read_text()
    with pytest.raises(ConfigurationError, match="exists and is kept"):
        app(["contract", "--home", str(home), "--out", "contract.yaml"], standalone_mode=False)
    assert (tmp_path / "contract.yaml").read_text() == before
    (tmp_path / "contract.yaml").write_text("min_rows: 5")
    app(["contract", "--home", str(home), "--out", "contract.yaml", "--force"], standalone_mode=False)
    assert (tmp_path / "contract.yaml").read_text() == before
