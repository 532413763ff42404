"""A training on more rows than memory is allowed, beside what the same costs read whole by pandas and Keras.

A Parquet set of FLOODMARK_BENCH_TRAINING_GIB GiB, ten times the allowance by default, of 200 float64 columns
is made in a temporary folder. A child process trains on it for one epoch on one rank; another reads a tenth
of it whole and fits the same network: the whole set would not fit most machines. Memory is the peak of
resident memory, in which the 0.7 GiB that TensorFlow takes by itself is counted; files that are read with
plain reads are in the page cache and not in it.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .lines import Line

ALLOWED_GIB = 1.5
SET_GIB = float(os.environ.get("FLOODMARK_BENCH_TRAINING_GIB", str(10 * ALLOWED_GIB)))
PEER_PART = 0.1
COLUMNS = 200
ROWS_PER_GROUP = 20_000
FILES = 10


def main() -> None:
    """Print every line of the case `training`."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-", dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        write(folder / "rows")
        ours, base = measure("ours", folder), measure("base", folder)
        whole = measure("whole", folder)
    case = f"training on {SET_GIB:g} GiB, {ALLOWED_GIB:g} GiB allowed"
    for peer, value in (
        ("allowance", ALLOWED_GIB),
        (f"pandas and Keras fit on {PEER_PART:g} of the set", whole),
        ("importing TensorFlow alone", base),
    ):
        Line(
            bench="memory",
            case=case,
            metric="peak_resident",
            value=ours,
            unit="GiB",
            peer=peer,
            peer_value=value,
            ratio=value / ours,
        ).print()


def write(folder: Path) -> None:
    """Write the set as ten files, one row group at a time."""
    folder.mkdir()
    rows = int(SET_GIB * 2**30 / 8 / COLUMNS / FILES)
    generator = np.random.default_rng(0)
    noise = [generator.normal(size=ROWS_PER_GROUP) for _ in range(COLUMNS)]
    names = [f"sensor_{column:03}" for column in range(COLUMNS)]
    for file in range(FILES):
        with pq.ParquetWriter(
            folder / f"part-{file}.parquet",
            pa.schema([(column, pa.float64()) for column in names]),
            use_dictionary=False,
            compression="none",
        ) as writer:
            for start in range(0, rows, ROWS_PER_GROUP):
                count, shift = min(ROWS_PER_GROUP, rows - start), (file * rows + start) * 1e-9
                writer.write_table(pa.table([values[:count] + shift for values in noise], names=names))


def measure(name: str, folder: Path) -> float:
    """Return the peak of resident memory of a child process, in GiB."""
    command = [sys.executable, "-m", "tests.bench.training_memory", name, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def base(_: Path) -> None:
    """Import what every rank imports."""
    from training import fit  # noqa: F401, PLC0415 - reads the environment that is prepared


def ours(folder: Path) -> None:
    """Train as a rank does, to the end."""
    from training.job import main as rank_main  # noqa: PLC0415 - likewise
    from training.types import (  # noqa: PLC0415 - likewise
        Column,
        DetectorSpec,
        FeatureSchema,
        TrainingJob,
        TrainingRequest,
    )

    names = pq.read_schema(folder / "rows" / "part-0.parquet").names
    some = folder / "some.parquet"
    with pq.ParquetFile(folder / "rows" / "part-0.parquet") as file:
        pq.write_table(file.read_row_group(0).slice(0, 5_000), some)
    request = TrainingRequest(
        model="bench",
        windows=(),
        schema=FeatureSchema(features=tuple(Column(name=name, kind="numeric") for name in names)),
        detector=DetectorSpec(options={"epochs": 1}),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=1,
        seed=0,
        champion_version=None,
    )
    job = TrainingJob(
        request=request,
        training_rows=str(folder / "rows"),
        calibration_rows=str(some),
        reference_rows=str(some),
        held_out_rows=str(some),
        output=str(folder / "output"),
        megabytes_per_rank=64,
    )
    (folder / "output").mkdir()
    (folder / "job.json").write_text(json.dumps(job, default=_fields))
    assert rank_main(str(folder / "job.json")) == 0


def _fields(value: object) -> dict[str, object]:
    import dataclasses  # noqa: PLC0415 - here alone

    return dataclasses.asdict(value)  # type: ignore[call-overload, no-any-return] # of a dataclass


def whole(folder: Path) -> None:
    """Read a tenth of the set whole and fit the same network, as one would without Floodmark."""
    import keras  # noqa: PLC0415 - likewise
    import pandas as pd  # noqa: PLC0415 - likewise

    files = sorted((folder / "rows").iterdir())[: int(FILES * PEER_PART)]
    frame = pd.concat([pd.read_parquet(path) for path in files], ignore_index=True)
    rows = ((frame - frame.mean()) / frame.std()).to_numpy(np.float32)
    layers = [keras.layers.Dense(128, "relu"), keras.layers.Dense(64), keras.layers.Dense(128, "relu")]
    network = keras.Sequential([*layers, keras.layers.Dense(COLUMNS)])
    network.compile("adam", "mse")
    network.fit(rows, rows, batch_size=512, epochs=1, verbose=0, validation_split=0.1)


PASSES = {"ours": ours, "base": base, "whole": whole}

if __name__ == "__main__":
    PASSES[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}\n")
