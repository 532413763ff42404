"""Small loops without a training: a wrong option loses nothing, and Ctrl-C ends a follower."""

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pandas as pd

from command import FLOODMARK, environment, floodmark, status
from processes import wait_until_nothing_is_left_of


def write_day(source: Path, day: int) -> None:
    times = pd.date_range(f"2026-01-0{day}", periods=60, freq="h", tz="UTC")
    frame = pd.DataFrame({"at": times, "x": range(60), "y": [f"{value % 3}" for value in range(60)]})
    hidden = source / f".day-{day}.csv"  # put in place whole, as the README asks
    frame.assign(x=frame["x"] * day).to_csv(hidden, index=False)
    hidden.rename(source / f"day-{day}.csv")


def test_an_interrupt_ends_a_follower_and_leaves_nothing_behind(tmp_path: Path) -> None:
    source, home = tmp_path / "incoming", tmp_path / "home"
    source.mkdir()
    write_day(source, 1)
    follower = subprocess.Popen(
        [FLOODMARK, "run", source, "--home", home, "--time-column", "at", "--follow"],
        cwd=tmp_path,
        env=environment({"FLOODMARK_FOLLOW_SECONDS": "0.5"}),
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    with follower:
        try:
            assert follower.stdout is not None
            assert follower.stdout.readline().startswith("day-1  bootstrap")
            write_day(source, 2)
            assert follower.stdout.readline().startswith("day-2  bootstrap")
            os.killpg(follower.pid, signal.SIGINT)  # as the terminal does
            assert follower.wait(timeout=120) != 0  # longer than waiting for events and the server may take
        finally:
            follower.kill()
    wait_until_nothing_is_left_of(home)
    assert len(status(home)["windows"]) == 2


def test_windows_read_by_a_wrong_option_are_taken_again(tmp_path: Path) -> None:
    source, home = tmp_path / "incoming", tmp_path / "home of its own"
    source.mkdir()
    for day in (1, 2):
        write_day(source, day)

    wrong = floodmark("run", source, "--home", home, "--time-column", "time", "--strict", cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (3, "")
    assert wrong.stdout.count("quarantined") == 2
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        emitted = database.execute("SELECT payload FROM events WHERE event = 'floodmark.data.invalid'")
        assert sorted(json.loads(payload)["window"] for (payload,) in emitted) == ["day-1", "day-2"]

    right = floodmark("run", source, "--home", home, "--time-column", "at", cwd=tmp_path)
    assert (right.returncode, right.stderr) == (0, "")
    assert [window["outcome"] for window in status(home)["windows"]] == ["bootstrap", "bootstrap"]
    told = floodmark("metrics", "--home", home, cwd=tmp_path)
    assert 'floodmark_windows_total{model="floodmark",outcome="bootstrap"} 2.0' in told.stdout
    again = floodmark("run", source, "--home", home, "--time-column", "at", cwd=tmp_path)
    assert "nothing to do: all 2 windows were taken before" in again.stdout
    wait_until_nothing_is_left_of(home)
