"""What the profiling pass of `floodmark check` costs on a window of any size, beside reading it.

A Parquet file of FLOODMARK_BENCH_ROWS rows (20 million by default) and 40 columns, float64 and float32 in
turn, is made in a temporary folder (5 GB). Child processes read its columns with pyarrow alone and take its
profile, in turn; the best of two counts for both. The peer of the peak memory is its bound.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra.parquet_batches import BOUNDED, ROWS_PER_BATCH, open_parquet
from monitoring.distances import ROW_CAP
from monitoring.profile import Profiler
from training.types import Column, FeatureSchema

ROWS = int(os.environ.get("FLOODMARK_BENCH_ROWS", "20_000_000"))
COLUMNS = 40
ROWS_PER_GROUP = 500_000
ROUNDS = 2
BOUND_GIB = 2.0


def main() -> None:
    """Print every line of the benchmark `memory`."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        path = Path(folder) / "window.parquet"
        write(path)
        runs = [{name: measure(name, path) for name in PASSES} for _ in range(ROUNDS)]
    reading, profiling = (ROWS / min(run[name][0] for run in runs) for name in PASSES)
    peak = max(run["profile"][1] for run in runs)
    report("rows_per_second", profiling, "rows/s", ("pyarrow reading", reading), profiling / reading)
    report("peak_resident", peak, "GiB", ("bound", BOUND_GIB), BOUND_GIB / peak)


def report(metric: str, value: float, unit: str, peer: tuple[str, float], ratio: float) -> None:
    """Print one line; a ratio above 1 is better than the peer."""
    line = {"bench": "memory", "case": f"{ROWS} x {COLUMNS}", "metric": metric, "value": round(value, 3)}
    compared = {"peer": peer[0], "peer_value": round(peer[1], 3), "ratio": round(ratio, 3)}
    sys.stdout.write(json.dumps({**line, "unit": unit, **compared}) + "\n")


def write(path: Path) -> None:
    """Write the window, one row group at a time; no row repeats."""
    types = [pa.float32() if position % 2 else pa.float64() for position in range(COLUMNS)]
    schema = pa.schema([(f"sensor_{position:02}", kind) for position, kind in enumerate(types)])
    generator = np.random.default_rng(0)
    noise = [generator.normal(size=ROWS_PER_GROUP).astype(kind.to_pandas_dtype()) for kind in types]
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start in range(0, ROWS, ROWS_PER_GROUP):
            rows, shift = min(ROWS_PER_GROUP, ROWS - start), np.float32(start / ROWS_PER_GROUP)
            columns = [pa.array(values[:rows] + shift) for values in noise]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROWS_PER_GROUP)


def measure(pass_: str, path: Path) -> tuple[float, float]:
    """Return the seconds of a pass and the peak memory in GiB of the process that it ran in."""
    command = [sys.executable, "-m", "tests.bench.memory", pass_, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def read(path: Path) -> None:
    """Read every column with pyarrow alone, in bounded memory too."""
    with pq.ParquetFile(path, **BOUNDED) as file:
        rows = sum(batch.num_rows for batch in file.iter_batches(ROWS_PER_BATCH))
    assert rows == ROWS


def profile(path: Path) -> None:
    """Take the profile as `floodmark check` does."""
    window = open_parquet([path])
    schema = FeatureSchema(features=tuple(Column(name=name, kind="numeric") for name in window.names))
    profiler = Profiler(schema, rows=window.rows)
    for batch in window.batches():
        profiler.add(batch)
    taken = profiler.finish()
    assert (taken.rows, len(taken.sample), taken.columns[window.names[0]].missing) == (ROWS, ROW_CAP, 0)


PASSES = {"read": read, "profile": profile}


def child(pass_: str, path: Path) -> None:
    """Print the seconds of a pass and this process's peak memory."""
    started = time.perf_counter()
    PASSES[pass_](path)
    seconds = time.perf_counter() - started
    sys.stdout.write(f"{seconds} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}\n")


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]))
