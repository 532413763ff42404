"""`floodmark score`, start-up, reading and writing included, beside pandas and Keras `predict`.

Parquet files of FLOODMARK_BENCH_ROWS rows (4 million by default) are scored by the command and by the program
that one would write without it (`keras_peer`): the same network and features, all rows in memory. Both run in
child processes, in turn; figures are medians. Start-up is what a file of one row takes. Last, the peak memory
of the command on 50 million rows beside that on 5 million (4 GB on disk).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from .lines import Line

ROWS = int(os.environ.get("FLOODMARK_BENCH_ROWS", "4_000_000"))
PEER_BATCH = 8_192
"""About the fastest of 1,024, 8,192 and 65,536."""
DEFAULT_BATCH = 32
"""That of Keras: its rows a second are those of a tenth of the rows, once."""
ROUNDS = 3
SIZES = (5_000_000, 50_000_000)
FLOODMARK = Path(sys.executable).parent / "floodmark"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("FLOODMARK_")}
ENVIRONMENT |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def main() -> None:
    """Print every line of the benchmark `scoring`."""
    for case in ("nsl-kdd", "readings"):
        with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
            speed(case, Path(folder))
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        memory("few", Path(folder))


def speed(case: str, folder: Path) -> None:
    """Time the command and its peer on the same file."""
    make(case, folder, {"one": 1, "tenth": ROWS // 10, "all": ROWS})
    commands = score_command(folder), peer_command(folder, PEER_BATCH)
    seconds: dict[tuple[int, str], list[float]] = {
        (who, rows): [] for who in (0, 1) for rows in ("one", "all")
    }
    for _ in range(ROUNDS):
        for (who, rows), taken in seconds.items():
            taken.append(run([word.format(rows) for word in commands[who]])[0])
    (own_start, own), (peer_start, peer) = (
        [statistics.median(seconds[who, rows]) for rows in ("one", "all")] for who in (0, 1)
    )
    slow = run([word.format("tenth") for word in peer_command(folder, DEFAULT_BATCH)])[0]
    name, rate = f"pandas and Keras predict(batch_size={PEER_BATCH})", ROWS / (own - own_start)
    report(case, "start-up", own_start, "s", name, peer_start, peer_start / own_start)
    report(case, "start-up and all rows", ROWS / own, "rows/s", name, ROWS / peer, peer / own)
    for predict, peer_rate in (
        (name, ROWS / (peer - peer_start)),
        ("the same with Keras' default batch_size=32", ROWS / 10 / (slow - peer_start)),
    ):
        report(case, "after start-up", rate, "rows/s", predict, peer_rate, rate / peer_rate)


def memory(case: str, folder: Path) -> None:
    """Compare the command's peak memory on a file with that on one of a tenth of its rows."""
    make(case, folder, {str(rows): rows for rows in SIZES})
    few, many = (run([word.format(rows) for word in score_command(folder)])[1] for rows in SIZES)
    report(f"{SIZES[1]} x 5", "peak resident memory", many, "GiB", f"{SIZES[0]} rows", few, few / many)


def make(case: str, folder: Path, files: dict[str, int]) -> None:
    """Make the champion of a case and its files, each in a child: this process stays small."""
    run([sys.executable, "-m", "tests.bench.scoring_home", "home", case, str(folder)])
    for name, rows in files.items():
        path = folder / f"{name}.parquet"
        run([sys.executable, "-m", "tests.bench.scoring_home", "rows", case, str(path), str(rows)])


def score_command(folder: Path) -> list[str]:
    """Return the command for the file that `{}` stands for."""
    out, home = folder / "scored.parquet", folder / "home"
    return [
        str(FLOODMARK),
        "score",
        f"{folder}/{{}}.parquet",
        "--out",
        f"{out}",
        "--home",
        f"{home}",
        "--force",
    ]


def peer_command(folder: Path, batch: int) -> list[str]:
    """Return the peer's command likewise."""
    peer = [sys.executable, "-m", "tests.bench.keras_peer", str(folder)]
    return [*peer, f"{folder}/{{}}.parquet", f"{folder}/peer.parquet", str(batch)]


def run(command: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that a command takes and its peak memory in GiB.

    Linux lets a child start with the peak of the process that forks it, so this one imports next to nothing.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} failed: {said.decode()}")
    return time.perf_counter() - started, usage.ru_maxrss / 2**20


def report(  # noqa: PLR0913, PLR0917 - the fields of a line
    case: str, metric: str, value: float, unit: str, peer: str, peer_value: float, ratio: float
) -> None:
    """Print one line."""
    Line(
        bench="scoring",
        case=case,
        metric=metric,
        value=round(value, 3),
        unit=unit,
        peer=peer,
        peer_value=round(peer_value, 3),
        ratio=round(ratio, 3),
    ).print()
