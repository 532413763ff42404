"""How long a training takes from the launch to its first step, beside a bare process that takes one.

The launch is the flow's call of the local pool. Rank 0 reports the first step with a checkpoint, which the
time includes. The peer is a new Python process that imports Keras on TensorFlow, builds the same network and
trains it on one batch. Both take turns; medians count.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .lines import Line
from .pool_run import Rows, train

WIDTH = 100
ROUNDS = int(os.environ.get("FLOODMARK_BENCH_ROUNDS", "3"))
BARE = f"""
import keras, numpy
inputs = keras.Input(({WIDTH},))
hidden = keras.layers.Dense(128, "relu")(inputs)
hidden = keras.layers.Dense(128, "relu")(keras.layers.Dense(64)(hidden))
network = keras.Model(inputs, keras.layers.Dense({WIDTH})(hidden))
network.compile("adam", "mse")
rows = numpy.ones((256, {WIDTH}), numpy.float32)
network.train_on_batch(rows, rows)
"""


def main() -> None:
    """Print every line of the benchmark `startup`."""
    seconds: dict[str, list[float]] = {"bare": [], "1 rank": [], "2 ranks": []}
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        rows = Rows.make(Path(name), 5_000, WIDTH)
        for turn in range(ROUNDS):
            seconds["bare"].append(bare())
            for ranks, case in ((1, "1 rank"), (2, "2 ranks")):
                run = train(f"{ranks}-{turn}", rows, ranks, {"epochs": 1}, checkpoint_seconds=0.0)
                seconds[case].append(run.seconds[0])
    peer = statistics.median(seconds.pop("bare"))
    for case, measured in seconds.items():
        value = statistics.median(measured)
        Line(
            bench="startup",
            case=case,
            metric="launch_to_first_step",
            value=round(value, 3),
            unit="s",
            peer="a bare process",
            peer_value=round(peer, 3),
            ratio=round(peer / value, 3),
        ).print()


def bare() -> float:
    """Return the seconds of a process that imports Keras on TensorFlow and takes a step."""
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", BARE], env=environment, check=True)
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
