"""How often an unchanged window raises an alarm: random parts of one set held against another part of it.

Normal rows of each set are shuffled; some are the champion's reference, the rest windows. Windows of every
size are judged, those below `min_rows` too, which in the loop are INCONCLUSIVE. The peer is Evidently with
its defaults, any column; its verdict on the whole data set (half of the columns) is printed beside it.

FLOODMARK_BENCH_WINDOWS (60 by default) bounds the windows of one set and size over all references.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from monitoring.drift import DriftPolicy
from monitoring.score_drift import summary
from monitoring.verdicts import DriftStatus
from monitoring.window_drift import window_drift

from .champions import champion
from .lines import Line, draw
from .peers import DATASET_SHARE, evidently_share

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SIZES = (50, 100, 300, 1_000, 5_000)
REFERENCES = 3
REFERENCE_ROWS = 10_000
POLICY = DriftPolicy(min_rows=1)


def sets() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the normal rows of each data set."""
    days = [pd.read_parquet(file) for file in sorted((DATA / "nsl-kdd" / "stream").iterdir())[:6]]
    traffic = pd.concat(days, ignore_index=True)
    yield "nsl-kdd", traffic[traffic["label"] == 0].drop(columns=["event_time", "label"])
    for name in ("shuttle", "http", "mnist", "campaign"):
        stored = np.load(DATA / "adbench" / f"{name}.npz")
        values = stored["X"][stored["y"] == 0]
        yield name, pd.DataFrame(values, columns=[f"x{place}" for place in range(values.shape[1])])
    series = pd.read_csv(DATA / "nab" / "machine_temperature_system_failure.csv")
    yield "nab", series[["value"]]


def main() -> None:
    """Print every line of the benchmark `false-alarms`."""
    most = int(os.environ.get("FLOODMARK_BENCH_WINDOWS", "60"))
    total: Counter[str] = Counter()
    by_size: dict[int, Counter[str]] = {size: Counter() for size in SIZES}
    for name, rows in sets():
        for size in SIZES:
            counted = count_alarms(rows, size, most)
            total += counted
            by_size[size] += counted
            report(f"{name}, {size} rows", counted)
    report("all", total)
    sizes = [size for size in SIZES if by_size[size]["windows"]]
    draw(
        "false-alarms",
        "rows of the window",
        "unchanged windows with an alarm",
        {
            label: (sizes, [by_size[size][key] / by_size[size]["windows"] for size in sizes])
            for label, key in (
                ("Floodmark, all tests", "alarms"),
                ("Evidently's defaults, any column", "evidently"),
                ("Evidently's defaults, half of the columns", "evidently dataset"),
            )
        },
    )


def count_alarms(rows: pd.DataFrame, size: int, most: int) -> Counter[str]:
    """Judge up to `most` windows of `size` rows, shared among several references."""
    counted: Counter[str] = Counter()
    for seed in range(REFERENCES):
        shuffled = rows.sample(frac=1, random_state=seed, ignore_index=True)
        known = min(REFERENCE_ROWS, len(rows) // 3)
        held_out, pool = shuffled[known : known * 3 // 2], shuffled[known * 3 // 2 :]
        reference, score = champion(shuffled[:known], held_out)
        for place in range(min(most // REFERENCES, len(pool) // size)):
            window = pool.iloc[place * size : (place + 1) * size]
            scores = score(window)
            told = [summary(scores, reference)]
            verdict = window_drift(window, scores, reference, told, POLICY, seed=seed)
            share = evidently_share(reference.rows, window)
            drifted = [test.test for test in verdict.tests if test.status is DriftStatus.DRIFTED]
            counted.update(drifted)
            counted["windows"] += 1
            counted["columns"] += bool(verdict.drifted_columns)
            counted["alarms"] += bool(drifted or verdict.drifted_columns)
            counted["evidently"] += share > 0
            counted["evidently dataset"] += share >= DATASET_SHARE
    return counted


def report(case: str, counted: Counter[str]) -> None:
    """Print the share of windows with an alarm, beside Evidently's."""
    windows = counted["windows"]
    if not windows:
        return
    shares = {key: counted[key] / windows for key in ("alarms", "evidently", "evidently dataset")}
    for key, peer in (("evidently", "any column"), ("evidently dataset", "half of the columns")):
        Line(
            bench="false-alarms",
            case=case,
            metric="windows with an alarm",
            value=shares["alarms"],
            unit=f"share of {windows}",
            peer=f"Evidently's defaults, {peer}",
            peer_value=shares[key],
            ratio=shares[key] / shares["alarms"] if shares["alarms"] else None,
        ).print()
    for test in ("columns", "joint", "scores", "alerts", "stream"):
        if counted[test]:
            Line(
                bench="false-alarms",
                case=case,
                metric=f"alarms of the test {test}",
                value=counted[test],
                unit="windows",
            ).print()


if __name__ == "__main__":
    main()
