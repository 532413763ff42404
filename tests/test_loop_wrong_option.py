"""A wrong option loses nothing: what it set aside is taken again once the option is right."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd

from command import floodmark, processes_of, status


def test_windows_read_by_a_wrong_option_are_taken_again(tmp_path: Path) -> None:
    source, home = tmp_path / "incoming", tmp_path / "home of its own"
    source.mkdir()
    for day in (1, 2):
        times = pd.date_range(f"2026-01-0{day}", periods=60, freq="h", tz="UTC")
        frame = pd.DataFrame({"at": times, "x": range(60), "y": [f"{value % 3}" for value in range(60)]})
        frame.assign(x=frame["x"] * day).to_csv(source / f"day-{day}.csv", index=False)

    wrong = floodmark("run", source, "--home", home, "--time-column", "time", "--strict", cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (3, "")
    assert wrong.stdout.count("quarantined") == 2
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        emitted = database.execute("SELECT payload FROM events WHERE event = 'floodmark.data.invalid'")
        assert sorted(json.loads(payload)["window"] for (payload,) in emitted) == ["day-1", "day-2"]

    right = floodmark("run", source, "--home", home, "--time-column", "at", cwd=tmp_path)
    assert (right.returncode, right.stderr) == (0, "")
    assert [window["outcome"] for window in status(home)["windows"]] == ["bootstrap", "bootstrap"]
    again = floodmark("run", source, "--home", home, "--time-column", "at", cwd=tmp_path)
    assert "nothing to do: all 2 windows were taken before" in again.stdout
    assert processes_of(home) == []
