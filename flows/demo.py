"""`make demo`: the whole loop on twelve days of real spacecraft telemetry, one sensor group recalibrated.

The rows are the UCI Statlog (Shuttle) data as the package river ships them. What is arranged here,
and only here: they are cut into daily windows, a fifth of the labelled anomalies is kept (about 1.5 %
of the rows, as real telemetry would have), and from the eighth day on the sensors f7 to f9 read
differently, as after a recalibration. Everything after that is `floodmark run`.
"""

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
from rich.console import Console
from river.datasets import Shuttle

FOLDER = Path(".demo")
DAYS, ROWS_A_DAY, RECALIBRATED_FROM = 12, 3_000, 8
RECALIBRATED, RECALIBRATION = ["f7", "f8", "f9"], "x * 1.1 + 4"
START = datetime(2026, 1, 1, tzinfo=UTC)


def telemetry() -> pd.DataFrame:
    """Return the telemetry in its published order, with a fifth of its anomalies."""
    rows = pd.DataFrame([{**features, "anomaly": label} for features, label in Shuttle()])
    anomalous = rows["anomaly"] == 1
    kept = ~anomalous | (anomalous.cumsum() % 5 == 0)
    return rows[kept].head(DAYS * ROWS_A_DAY)


def write_windows(folder: Path) -> None:
    """Write one Parquet object a day, the later ones recalibrated."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = telemetry()
    for day in range(DAYS):
        window = rows.iloc[day * ROWS_A_DAY : (day + 1) * ROWS_A_DAY].reset_index(drop=True)
        begin = START + timedelta(days=day)
        window.insert(
            0, "time", pd.date_range(begin, periods=len(window), freq=timedelta(days=1) / len(window))
        )
        if day + 1 >= RECALIBRATED_FROM:
            window[RECALIBRATED] = window[RECALIBRATED] * 1.1 + 4
        window.to_parquet(folder / f"{begin:%Y-%m-%d}.parquet")


def main() -> int:
    """Write the windows, run the loop on them from its beginning, show what happened."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_windows(FOLDER / "incoming")
    say(
        f"{DAYS} days of UCI Statlog (Shuttle) telemetry, {ROWS_A_DAY} rows each, in {FOLDER}/incoming;"
        f" from day {RECALIBRATED_FROM} on, {', '.join(RECALIBRATED)} read {RECALIBRATION}."
    )
    model = ["--home", str(FOLDER / "home"), "--model", "shuttle"]
    columns = ["--time-column", "time", "--label-column", "anomaly"]
    return floodmark("run", str(FOLDER / "incoming"), *model, *columns) or floodmark("status", *model)


def floodmark(*arguments: str) -> int:
    """Show a command and run it."""
    say(f"$ floodmark {' '.join(arguments)}")
    program = Path(sys.executable).with_name("floodmark")
    return subprocess.run([program, *arguments], check=False).returncode  # noqa: S603 - our own program


def say(text: str) -> None:
    """Print at once, before a child prints."""
    Console(highlight=False, markup=False, soft_wrap=True).print(text)


if __name__ == "__main__":
    sys.exit(main())
