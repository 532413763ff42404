"""Wrong use and configuration: exit code 2, what is wrong, what is allowed, and nothing is written."""

import sys
from pathlib import Path

import pytest

from flows.cli import main
from infra.s3_store import s3_client
from infra.settings import load_settings
from training.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an empty source and one without data in it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no data")
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3_client.cache_clear()
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["floodmark", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere"], ["nowhere does not exist", "an existing folder, or s3://bucket/prefix"]),
        (["run", "empty"], ["is empty", ".parquet, .csv, .csv.gz"]),
        (["run", ".", "--home", "kept"], ["lies within the source", "begins with a dot"]),
        (["run", "notes"], ["only ignored objects (readme.txt)"]),
        (["run", "ftp://host/x"], ["'ftp://host/x'", "s3://bucket/prefix"]),
        (["run", "s3://some-bucket/x"], ["credentials", "AWS_ACCESS_KEY_ID"]),
        (["run", "empty", "--config", "absent.toml"], ["absent.toml", "--config"]),
        (["run", "empty", "--model", "a/b"], ["model", "'a/b'"]),
        (["status", "--home", "absent"], ["absent does not exist"]),
        (["status", "--home", "notes"], ["no ledger of a model named floodmark", "floodmark run"]),
        (["history", "--home", "notes", "--model", "other"], ["no ledger of a model named other"]),
    ],
)
def test_wrong_use(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: list[str],
) -> None:
    before = sorted(folder.rglob("*"))
    assert run(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    for part in said:
        assert part in captured.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments", [["run"], ["unknown"], ["run", "empty", "--unknown"], ["history", "--at", "noon"]]
)
def test_wrong_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    del folder
    assert run(monkeypatch, *arguments) == 2


def test_an_unreachable_store_is_worth_retrying(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    assert run(monkeypatch, "run", "s3://some-bucket/x") == 1
    said = capsys.readouterr().err
    assert "run the same command again" in said
    assert "swordfish" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = = b", "not valid TOML"),
        ("target = 1", "target"),
        ("[threshold]\ntarget_alert_rate = 2", "target_alert_rate is 2.0; it must lie between 0 and 1"),
        ("[threshold]\nmethod = 'guess'", "method is 'guess'; allowed are quantile"),
        ("[training]\nranks = 0", "ranks is 0"),
        ("[training]\npool = 'cloud'", "pool is 'cloud'; allowed are local"),
        ("[training]\ntimeout_seconds = nan", "timeout_seconds is nan"),
        ("[training]\nrnks = 2", "unknown key rnks; allowed are"),
        ("[drift]\ndrift_share = 2", "drift_share is 2.0"),
        ("[drift]\nseason = 'month'", "'none', 'hour' or 'weekday'"),
        ("[gates]\nmargin = 7", "margin from 0, below 1"),
        ("[quality]\nmin_rows = 0", "min_rows is 0"),
        ("[retraining]\ndrifted = 4", "drifted is 4 of 3"),
        ("[csv]\nseparator = 'ab'", "separator"),
        ("[detector]\nname = 'oracle'", "unknown detector 'oracle'"),
        ("[detector.options]\nepochs = -1", "epochs = -1"),
        (
            "[threshold]\ntarget_alert_rate = 0.5",
            "gates.alert_rate_factor 3.0 times the target",
        ),
        ("tracking_uri = 'postgresql://u:swordfish@h/db'", "MLFLOW_TRACKING_USERNAME"),
    ],
)
def test_wrong_configuration(folder: Path, text: str, said: str) -> None:
    (folder / "floodmark.toml").write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load_settings(None, {})
    assert said in str(error.value)
    assert "swordfish" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[drift]\nseason = 'weekday'", "drift.season 'weekday' needs a time_column"),
        ("[threshold]\nmethod = 'f_beta'", "threshold.method 'f_beta' needs a label_column"),
        ("[threshold]\nmethod = 'alert_budget'\nalerts_per_day = 3", "'alert_budget' needs a time_column"),
    ],
)
def test_a_column_that_is_needed_is_asked_for_by_what_reads_windows_alone(
    folder: Path, text: str, said: str
) -> None:
    (folder / "floodmark.toml").write_text(text)
    settings = load_settings(None, {})  # as `status` and `rollback` do
    with pytest.raises(ConfigurationError, match=said):
        settings.require_columns()
    load_settings(None, {"time_column": "at", "label_column": "label"}).require_columns()


@pytest.mark.parametrize(
    "variable", ["FLOODMARK_FOO", "FLOODMARK_TRAINING__RNKS", "FLOODMARK_TRAINING__RANKS"]
)
def test_wrong_variables(folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    del folder
    monkeypatch.setenv(variable, "many")
    with pytest.raises(ConfigurationError):
        load_settings(None, {})


def test_the_command_line_overrules_variables_and_variables_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "model = 'file'\ntime_column = 'file'\n[training]\nseed = 1\nranks = 3"
    (folder / "floodmark.toml").write_text(text)
    monkeypatch.setenv("FLOODMARK_TIME_COLUMN", "variable")
    monkeypatch.setenv("FLOODMARK_MODEL", "variable")
    monkeypatch.setenv("FLOODMARK_TRAINING__RANKS", "4")
    settings = load_settings(None, {"model": "option", "label_column": None})
    assert (settings.model, settings.time_column, settings.label_column) == ("option", "variable", None)
    assert (settings.training.ranks, settings.training.seed) == (4, 1)
    assert settings.home == folder / ".floodmark"
