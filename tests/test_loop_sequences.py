"""The whole loop with a detector of sequences: real telemetry of two machines, two ranks, then file and HTTP."""

import json
from pathlib import Path

import pandas as pd
import pytest

from command import floodmark, status

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
    print(done.stdout)
    return folder / "home"


def test_a_detector_of_sequences_is_trained_judged_and_scores_the_windows_that_follow(home: Path) -> None:
    told = status(home)
    print(json.dumps(told)[:6000])
