"""How many windows pass from a known change to the verdict and to the decision to retrain.

Three streams are replayed as `floodmark backtest` does it: NSL-KDD, whose traffic changes on 2026-01-11;
NAB's ambient temperature, whose level rises for good on 2013-09-24 after a gap in the record; and the
rows of ADBench's pendigits in random order, some of whose sixteen columns are shifted by one standard
deviation from the tenth window on. The default policy is held against 1 of 1, its peer here.

A delay of 0 is the window of the change itself. `missed` is 1 where no decision followed the change within
the stream; a delay that has no end is not printed.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from monitoring.backtest import BacktestPolicy, Reading, References, Replay
from monitoring.backtest_result import BacktestResult, change_place, result_of
from monitoring.drift import DriftPolicy
from monitoring.repeated import content_digest
from monitoring.retraining import RetrainingPolicy
from training.types import Window

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DEFAULT, EAGER = RetrainingPolicy(), RetrainingPolicy(drifted=1, of=1)
Frames = dict[str, pd.DataFrame]


def main() -> None:
    """Print every line of the benchmark `delay`."""
    columns = Reading(time_column="event_time", label_column="label")
    report("nsl-kdd", nsl_kdd(), columns, changed_at="2026-01-11")
    report("nab ambient temperature", ambient_temperature(), Reading(time_column="timestamp"), "2013-09-24")
    for moved in (1, 4):
        frames = pendigits(moved)
        report(f"pendigits, {moved} of 16 columns by 1 sd", frames, Reading(), changed_at="w10")


def nsl_kdd() -> Frames:
    """Return the twelve days."""
    return {file.stem: pd.read_parquet(file) for file in sorted((DATA / "nsl-kdd" / "stream").iterdir())}


def ambient_temperature(rows: int = 336) -> Frames:
    """Cut the hourly series into windows of two weeks' rows."""
    series = pd.read_csv(DATA / "nab" / "ambient_temperature_system_failure.csv")
    return {
        f"w{place:02}": series.iloc[start : start + rows].reset_index(drop=True)
        for place, start in enumerate(range(0, len(series) - rows, rows))
    }


def pendigits(columns: int, rows: int = 500, changed: int = 10, windows: int = 13) -> Frames:
    """Draw the rows in random order, so that nothing changes but what is changed here."""
    values = np.load(DATA / "adbench" / "pendigits.npz")["X"]
    table = pd.DataFrame(values, columns=[f"x{place}" for place in range(values.shape[1])])
    table = table.sample(frac=1, random_state=0, ignore_index=True)
    moved = [f"x{place}" for place in range(columns)]
    table.loc[changed * rows :, moved] += table[moved].std()
    return {f"w{place:02}": table.iloc[place * rows : (place + 1) * rows] for place in range(windows)}


def report(case: str, frames: Frames, reading: Reading, changed_at: str) -> None:
    """Replay one stream under both policies and print a line a figure."""
    references = References(frames.__getitem__, reading.seed)
    policies = (
        BacktestPolicy(name="2 of 3", drift=DriftPolicy(), retraining=DEFAULT),
        BacktestPolicy(name="1 of 1", drift=DriftPolicy(), retraining=EAGER),
    )
    replays = [Replay(policy, reading, references) for policy in policies]
    for name, frame in frames.items():
        digest = content_digest(frame)
        for replay in replays:
            replay.take(Window(id=name, objects=()), frame, digest)
    change = change_place(changed_at, replays[0].history.windows)
    ours, peer = (
        result_of(policy.name, replay.history, change=change, seconds_each=None)
        for policy, replay in zip(policies, replays, strict=True)
    )
    for metric, value, other in figures(ours, peer):
        line = {
            "bench": "delay",
            "case": f"{case}, {ours.policy}",
            "metric": metric,
            "value": value,
            "unit": "windows",
            "peer": peer.policy,
            "peer_value": other,
            "ratio": other / value if value and other is not None else None,
        }
        sys.stdout.write(json.dumps(line) + "\n")


def figures(ours: BacktestResult, peer: BacktestResult) -> list[tuple[str, float, float | None]]:
    """Name the figures of both; a delay is left out where the change was missed."""
    delays = [
        ("windows to verdict", ours.windows_to_verdict, peer.windows_to_verdict),
        ("windows to decision", ours.windows_to_decision, peer.windows_to_decision),
    ]
    found = [(name, float(value), other) for name, value, other in delays if value is not None]
    missed, peers_missed = (float(policy.windows_to_decision is None) for policy in (ours, peer))
    return [
        *found,
        ("missed", missed, peers_missed),
        ("false alarms", float(ours.false_alarms or 0), peer.false_alarms),
        ("trainings", float(ours.trainings), peer.trainings),
    ]
