"""How fast trainings are, beside Keras, PyOD and torch, and what a second rank brings.

`keras`: one rank with one thread beside Keras `fit` with the same network, noise, rows, batch and learning
rates, and all cores. `ranks`: two ranks beside one rank of one thread and one of all cores, at the shipped
defaults. `curve`: the same over batches and local steps, and how long ranks exchange.
`torch`: PyOD's autoencoder and torch's DistributedDataParallel with two processes, in an environment of their
own under build/. Rows are FLOODMARK_BENCH_TRAINING_ROWS made ones of 100 columns. What is compared takes
turns, FLOODMARK_BENCH_ROUNDS of them; rates are medians, over the epochs after the first.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from .lines import Line, draw
from .pool_run import RANK_THREADS, Rows, Run, made, train

ROWS = int(os.environ.get("FLOODMARK_BENCH_TRAINING_ROWS", "200_000"))
ROUNDS = int(os.environ.get("FLOODMARK_BENCH_ROUNDS", "2"))
WIDTH = 100
EPOCHS = 6
BATCH = {"smallest_batch": 256, "largest_batch": 256}
CURVE_BATCHES = (256, 512, 1024, 2048)
CURVE_LOCAL_STEPS = (1, 4, 16, 32)
PEERS = Path("build") / "bench" / "torch"
HERE = Path(__file__).parent

Options = Mapping[str, float | int | str]


def main(only: str | None = None) -> None:
    """Print every line of the benchmark `training`, or of one of its cases."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        rows = Rows.make(Path(name), ROWS, WIDTH)
        np.save(rows.folder / "rows.npy", made(ROWS, WIDTH))
        for case, measure in CASES.items():
            if only in (None, case):
                measure(rows)


def keras(rows: Rows) -> None:
    """One rank, one thread, against Keras with all cores, both at batches of 256."""
    ours, peers = [], []
    for turn in range(ROUNDS):
        ours.append(one_thread(f"keras-{turn}", rows, BATCH))
        command = [sys.executable, str(HERE / "keras_fit_peer.py")]
        peers.append(peer(command, rows, BATCH["largest_batch"]))
    compare("one rank, one thread, batch 256", ours, "Keras fit, all cores", *columns(peers))


def ranks(rows: Rows) -> None:
    """Two ranks against one, at the shipped defaults."""
    single, whole, two = [], [], []
    for turn in range(ROUNDS):
        single.append(one_thread(f"single-{turn}", rows, {}))
        two.append(own(f"two-{turn}", rows, 2, {}))
        whole.append(own(f"whole-{turn}", rows, 1, {}))
    for name, runs in (("one rank, one thread", single), ("one rank, all cores", whole)):
        rates, losses = [run.rows_per_second() for run in runs], [run.loss for run in runs]
        compare("two ranks, shipped defaults", two, name, rates, losses)
    where("two ranks, shipped defaults", two[-1])


def curve(rows: Rows) -> None:
    """Two ranks against one rank of one thread over batches and local steps."""
    rates: dict[int, list[float]] = {steps: [] for steps in CURVE_LOCAL_STEPS}
    for batch in CURVE_BATCHES:
        bounds = {"smallest_batch": batch, "largest_batch": batch, "epochs": 3}
        single = one_thread(f"curve-{batch}", rows, bounds)
        for steps in CURVE_LOCAL_STEPS:
            run = own(f"curve-{batch}-{steps}", rows, 2, {**bounds, "local_steps": steps})
            case = f"two ranks, batch {batch}, local steps {steps}"
            compare(case, [run], "one rank, one thread", [single.rows_per_second()], [single.loss])
            where(case, run)
            rates[steps].append(run.rows_per_second() / single.rows_per_second())
    curves = {f"{steps} local steps": (CURVE_BATCHES, found) for steps, found in rates.items()}
    draw("training", "rows of a batch over both ranks", "speed of two ranks over that of one", curves)


def torch(rows: Rows) -> None:
    """PyOD's autoencoder and DistributedDataParallel, with the network and batch of the shipped defaults."""
    python = install_torch()
    batch = 512
    two, parallel, pyod = [], [], []
    for turn in range(ROUNDS):
        two.append(own(f"torch-{turn}", rows, 2, {}))
        parallel.append(peer([python, str(HERE / "torch_peer.py"), "parallel"], rows, batch))
        pyod.append(peer([python, str(HERE / "torch_peer.py"), "pyod"], rows, batch))
    name = "DistributedDataParallel, two processes"
    compare("two ranks, shipped defaults", two, name, *columns(parallel))
    compare("two ranks, shipped defaults", two, "PyOD AutoEncoder, all cores", columns(pyod)[0], [])


CASES: dict[str, Callable[[Rows], None]] = {"keras": keras, "ranks": ranks, "curve": curve, "torch": torch}


def own(name: str, rows: Rows, number: int, options: Options) -> Run:
    """Train on `number` ranks through the pool."""
    return train(name, rows, number, {"epochs": EPOCHS, **options})


def one_thread(name: str, rows: Rows, options: Options) -> Run:
    """Train on one rank that has one thread; ranks inherit these variables."""
    kept = {key: os.environ.get(key) for key in RANK_THREADS}
    os.environ |= RANK_THREADS
    try:
        return own(name, rows, 1, options)
    finally:
        for key, value in kept.items():
            os.environ.pop(key)
            os.environ |= {key: value} if value is not None else {}


def peer(command: list[str], rows: Rows, batch: int) -> tuple[float, float]:
    """Return the rows a second of a peer, and its training loss in the last epoch."""
    arguments = [str(rows.folder / "rows.npy"), str(batch), str(EPOCHS)]
    done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return float(told["rows_per_second"]), float(told["loss"])


def columns(told: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the rates and the losses of a peer's turns."""
    return [rate for rate, _ in told], [loss for _, loss in told]


def compare(case: str, runs: list[Run], name: str, rates: list[float], losses: list[float]) -> None:
    """Print rows a second and, where the peer has told its own, the loss; the peer's over ours."""
    ours = statistics.median(run.rows_per_second() for run in runs)
    line(case, "rows_per_second", ours, "rows/s", name, statistics.median(rates))
    if losses:
        # Of a peer, the loss that it has trained with; of ours, the one that the peer's means.
        own_losses = [
            run.loss if name.startswith("one rank") else run.whole_epochs()[-1]["loss"] for run in runs
        ]
        line(
            case, "loss", statistics.median(own_losses), "mean squared error", name, statistics.median(losses)
        )


def where(case: str, run: Run) -> None:
    """Print what part of an epoch rank 0 spends in exchanges, waiting for the other included."""
    training_rows = 0.9 * ROWS
    shares = [
        figures["allreduce_seconds"] * figures["rows_per_second"] / training_rows
        for figures in run.whole_epochs()
    ]
    line(case, "share_in_exchanges", statistics.median(shares), "of an epoch")


def line(  # noqa: PLR0913, PLR0917 - the fields of a line
    case: str, metric: str, value: float, unit: str, name: str | None = None, other: float | None = None
) -> None:
    """Print one line; the ratio is above 1 where ours is better."""
    ratio = None if other is None else (other / value if metric == "loss" else value / other)
    Line(
        bench="training",
        case=case,
        metric=metric,
        value=round(value, 4),
        unit=unit,
        peer=name,
        peer_value=None if other is None else round(other, 4),
        ratio=None if ratio is None else round(ratio, 3),
    ).print()


def install_torch() -> str:
    """Return the Python of an environment with torch and PyOD, made where there is none.

    pip takes torch's build for the CPU alone where its configuration names a place that has it.
    """
    python = PEERS / "bin" / "python"
    if not (PEERS / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], check=True)
        packages = ["torch==2.13.0", "pyod==3.6.7", "tqdm"]  # which PyOD imports and does not name
        pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(pip, stdout=sys.stderr, check=True)
        (PEERS / "installed").touch()
    return str(python.absolute())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
