"""The whole loop with a detector of sequences: real telemetry of two machines, two ranks, files and HTTP."""

from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest

from command import floodmark, status
from infra.http_scorer import score_body
from infra.registry import Registry
from infra.served_champion import Served
from infra.settings import load_settings
from training import artifact
from training.errors import ConfigurationError, InvalidArtifactError, InvalidWindowError
from training.scorer import Scorer
from training.sequences import STRETCH

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")
SKAB = Path(__file__).resolve().parents[2] / "shared" / "data" / "skab" / "anomaly-free.csv"
WINDOWS, ROWS = 4, 1_100
CONFIGURATION = """
time_column = "datetime"
entity_column = "pump"

[detector]
name = "conv_autoencoder"
options = { length = 16, epochs = 6 }

[retraining]
bootstrap_windows = 2
drifted = 1
of = 1

[drift]
numeric_threshold = 3.0   # an hour of this telemetry is one long swing
"""


def write_windows(source: Path) -> None:
    """Write windows of two pumps, whose rows are the stretches before and after, in no order."""
    rows = pd.read_csv(SKAB, sep=";", parse_dates=["datetime"])
    for number in range(WINDOWS):
        first, second = (
            rows.iloc[2 * number * ROWS + offset : 2 * number * ROWS + offset + ROWS] for offset in (0, ROWS)
        )
        both = pd.concat(
            [first.assign(pump="north"), second.assign(datetime=first["datetime"].to_numpy(), pump="south")]
        )
        both.sample(frac=1, random_state=number).to_csv(source / f"{number}.csv", index=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sequences")
    source = folder / "source"
    source.mkdir()
    write_windows(source)
    (folder / "floodmark.toml").write_text(CONFIGURATION)
    done = floodmark("run", source, "--home", folder / "home", cwd=folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return folder / "home"


@pytest.fixture(scope="module")
def folder(home: Path) -> Path:
    """The artifact of version 1."""
    return Registry.open(home, "floodmark", None).artifact_folder("1")


def test_a_detector_of_sequences_is_trained_judged_and_trained_again(home: Path) -> None:
    told = status(home)
    assert [window["outcome"] for window in told["windows"]] == ["bootstrap", "bootstrap", "scored", "scored"]
    assert told["windows"][2]["alert_rate"] < 0.09
    assert told["windows"][3]["drift"]["status"] == "DRIFTED"
    first, second = told["trainings"]
    assert (first["outcome"], first["world_size"], second["outcome"]) == ("registered", 2, "registered")
    assert 0.45 < first["rows"] / (2 * 2 * ROWS) < 0.55
    assert "suspect" in second["guard"]  # the champion was asked, about rows in their sequences
    assert told["promotions"][0]["outcome"] == "promoted"
    gates = {gate["gate"]: gate for gate in told["promotions"][0]["gates"]}
    assert gates["injected_anomalies"]["observed"] > 0.6
    assert all(gate["verdict"] != "not_checked" for gate in told["promotions"][1]["gates"])


def test_the_artifact_holds_stretches_and_how_they_were_told(folder: Path) -> None:
    scorer = Scorer.load(folder)
    assert scorer.sequences is not None
    assert (scorer.sequences.length, scorer.sequences.max_gap_seconds) == (16, 5.0)
    held_out = pd.read_parquet(folder / artifact.HELD_OUT)
    assert len(held_out) == pytest.approx(0.5 * 2 * 2 * ROWS, rel=0.1)
    for _, stretch in held_out.groupby(STRETCH):
        assert stretch["datetime"].diff().dropna().dt.total_seconds().between(0, 5).all()
    (folder / artifact.SEQUENCES).rename(folder / "hidden")
    with pytest.raises(InvalidArtifactError, match=r"sequences\.json"):
        Scorer.load(folder)
    (folder / "hidden").rename(folder / artifact.SEQUENCES)


def test_files_and_requests_are_scored_as_windows_are(home: Path, folder: Path) -> None:
    rows = pd.read_csv(home.parent / "source" / "2.csv").head(1_500)
    known = pd.read_parquet(home / "scores" / "floodmark" / "2.parquet")
    whole = pd.read_csv(home.parent / "source" / "2.csv")
    scorer = Scorer.load(folder)
    np.testing.assert_allclose(scorer.score(whole), known["anomaly_score"], rtol=1e-6)

    rows.to_parquet(home / "rows.parquet", row_group_size=100)
    out = home / "scored.parquet"
    done = floodmark("score", home / "rows.parquet", "--out", out, "--home", home, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    scored = pd.read_parquet(out)
    champion = Scorer.load(Registry.open(home, "floodmark", None).artifact_folder(scored["model_version"][0]))
    np.testing.assert_allclose(scored["anomaly_score"], champion.score(rows), rtol=1e-6)
    assert scored["datetime"].tolist() == rows["datetime"].tolist()

    served = Served.load("1", folder)
    body = orjson.dumps({"rows": rows.to_dict("records")})
    np.testing.assert_allclose(score_body(served, body, "application/json"), scorer.score(rows), rtol=1e-6)
    parquet = (home / "rows.parquet").read_bytes()
    by_parquet = score_body(served, parquet, "application/vnd.apache.parquet")
    np.testing.assert_allclose(by_parquet, scorer.score(rows), rtol=1e-6)
    untimed = orjson.dumps({"rows": rows.drop(columns="datetime").to_dict("records")})
    with pytest.raises(InvalidWindowError, match="lacks 1 of 10 features: 'datetime'"):
        score_body(served, untimed, "application/json")


def test_without_a_time_column_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "floodmark.toml").write_text('[detector]\nname = "lstm_autoencoder"\n')
    done = floodmark("run", tmp_path / "a.csv", "--home", tmp_path / "home", cwd=tmp_path)
    assert done.returncode == 2
    assert "'lstm_autoencoder' reads sequences and needs a time_column" in done.stderr
    assert not (tmp_path / "home").exists()


def test_known_anomalies_take_no_part_in_sequences() -> None:
    given: dict[str, object] = {
        "time_column": "at",
        "detector": {"name": "conv_autoencoder"},
        "supervision": {"anomaly_weight": 1.0},
    }
    with pytest.raises(ConfigurationError, match="needs a detector of single rows"):
        load_settings(None, given).require_columns()
