"""Benchmark `soak`: 500 windows through the loop while faults happen at random; then what is left is counted.

The loop runs on S3 and an MLflow server behind proxies that delay, refuse, break off or answer 503; the home
lies on a disk that fills up; the loop itself, its Prefect server, its ranks and the MLflow server are killed;
and a second loop is started beside the first. Seeds are printed: the order of the faults is drawn from one.
"""

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import boto3
import numpy as np
import pandas as pd
import psutil

from command import FLOODMARK, environment
from faulty_proxy import FaultyProxy, proxying
from infra.ledger import Ledger
from infra.registry import Registry
from infra.s3_store import S3Settings
from infra.stores import open_store
from monitoring.history import History
from processes import processes_of
from s3_server import S3Server, serving_s3
from tracking_server import serving

from .lines import Line

WINDOWS = int(os.environ.get("SOAK_WINDOWS", "500"))
SEED = int(os.environ.get("SOAK_SEED", "0"))
ROWS = 300
WINDOWS_BETWEEN_SHIFTS = 40
LONGEST_CALM_S, LONGEST_FAULT_S = 30.0, 5.0
PATIENCE_S = 7_200
DISK_MEGABYTES = 1_500
CONFIGURATION = """
model = "soak"
time_column = "time"
follow_seconds = 1

[threshold]
target_alert_rate = 0.05

[retraining]
min_rows = 600

[training]
ranks = 1

[detector.options]
epochs = 8
"""


def window_of(number: int) -> bytes:
    """One hour of three coupled sensors; every 40 hours their relation changes."""
    generator = np.random.default_rng(number)
    regime = number // WINDOWS_BETWEEN_SHIFTS
    load = generator.gamma(4.0, 10.0, ROWS) * (1 + 0.4 * (regime % 2))
    frame = pd.DataFrame(
        {
            "time": pd.date_range(
                pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(hours=number), periods=ROWS, freq="10s"
            ),
            "load": load,
            "temperature": 40 + 0.5 * load + generator.normal(0, 1, ROWS),
            "pressure": (3 + 0.02 * load) * (1 + 0.5 * (regime % 3)) + generator.normal(0, 0.1, ROWS),
        }
    )
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


@dataclass(slots=True, kw_only=True)
class Soak:
    """The loop under test, all that can be done to it, and what was done."""

    home: Path
    env: dict[str, str]
    source: str
    log: Path
    chance: random.Random
    s3: FaultyProxy
    tracking: FaultyProxy
    disk: Path
    restart_tracking: Callable[[], None]
    loops: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    resident: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start one more loop."""
        with self.log.open("ab") as log:
            command: list[str | Path] = [
                FLOODMARK,
                "run",
                self.source,
                "--home",
                self.home,
                "--config",
                self.home / "soak.toml",
            ]
            self.loops.append(
                subprocess.Popen(command, env=environment(self.env), stdout=log, stderr=log, cwd=self.disk)
            )

    def running(self) -> list["subprocess.Popen[bytes]"]:
        """The loops that have not ended, whose memory is noted."""
        self.loops = [loop for loop in self.loops if loop.poll() is None]
        for loop in self.loops:
            with suppress(psutil.Error):
                self.resident.append(psutil.Process(loop.pid).memory_info().rss)
        return self.loops

    def harm(self) -> None:
        """Let one fault happen, for some seconds where it has a length."""
        kind = self.chance.choice(
            ["kill the loop", "kill one of its processes", "storage", "tracking", "restart", "disk", "twice"]
        )
        self.done[kind] += 1
        match kind:
            case "kill the loop":
                for loop in self.running():
                    loop.kill()
            case "kill one of its processes":
                self._kill_one_below()
            case "storage":
                self._fail(self.s3)
            case "tracking":
                self._fail(self.tracking)
            case "restart":
                self.restart_tracking()
            case "disk":
                self._fill_disk()
            case _:
                self.start()

    def _kill_one_below(self) -> None:
        for loop in self.running():
            with suppress(psutil.Error):
                if below := psutil.Process(loop.pid).children(recursive=True):
                    self.chance.choice(below).send_signal(signal.SIGKILL)

    def _fail(self, proxy: FaultyProxy) -> None:
        proxy.mode = self.chance.choice(["delaying", "refusing", "breaking", "unavailable"])
        time.sleep(self.chance.uniform(0.5, LONGEST_FAULT_S))
        proxy.mode = "passing"

    def _fill_disk(self) -> None:
        ballast = self.disk / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(2**20))
                file.flush()
        time.sleep(self.chance.uniform(0.5, LONGEST_FAULT_S))
        ballast.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Yield a file system of its own, in memory, that can be filled up; it takes a root user to mount it."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(folder)],  # noqa: S607 - of the system
        check=True,
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607 - likewise


@contextmanager
def prepared(folder: Path, chance: random.Random) -> Iterator[tuple[Soak, S3Server]]:
    """Yield the loop's surroundings, with all windows in the bucket."""
    with ExitStack() as stack:
        server = stack.enter_context(serving_s3())
        s3 = stack.enter_context(proxying(urlsplit(server.endpoint_url).port or 0))
        tracking = stack.enter_context(proxying(0))
        disk = stack.enter_context(small_disk(folder / "disk"))
        client = boto3.client("s3", **access(server, server.endpoint_url))
        for number in range(WINDOWS):
            client.put_object(
                Bucket=server.bucket, Key=f"windows/{number:04d}.parquet", Body=window_of(number)
            )
        current = stack.enter_context(ExitStack())

        def restart() -> None:
            current.close()
            url, _ = current.enter_context(serving(folder))
            tracking.target = urlsplit(url).port or 0

        restart()
        home = disk / "home"
        home.mkdir()
        (home / "soak.toml").write_text(CONFIGURATION)
        (folder / "temporary").mkdir()
        env = server.environment | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}",
            "FLOODMARK_STORE": f"s3://{server.bucket}/store",
            "FLOODMARK_TRACKING_URI": f"http://127.0.0.1:{tracking.port}",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "TMPDIR": str(folder / "temporary"),
        }
        yield (
            Soak(
                home=home,
                env=env,
                source=f"s3://{server.bucket}/windows",
                log=folder / "loop.log",
                chance=chance,
                s3=s3,
                tracking=tracking,
                disk=disk,
                restart_tracking=restart,
            ),
            server,
        )


def access(server: S3Server, endpoint: str) -> dict[str, Any]:
    """Return boto3's arguments for the server."""
    return {
        "endpoint_url": endpoint,
        "region_name": "us-east-1",
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
    }


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def history_of(server: S3Server) -> History:
    """The ledger, read past the proxies."""
    os.environ.update(server.environment)
    store = open_store(f"s3://{server.bucket}/store", S3Settings(endpoint_url=server.endpoint_url))
    return Ledger.of(store, "soak").load()


def print_line(metric: str, value: float, unit: str) -> None:
    """Print one figure of the soak."""
    Line(bench="soak", case=f"{WINDOWS} windows, seed {SEED}", metric=metric, value=value, unit=unit).print()


def main() -> None:
    """Run the soak and print what it left; an ending that is not the right one is an error."""
    chance, started = random.Random(SEED), time.monotonic()  # noqa: S311 - the order of faults
    with TemporaryDirectory(prefix="soak-") as name, prepared(Path(name), chance) as (soak, server):
        try:
            endure(soak, server, started + PATIENCE_S)
        finally:
            for loop in soak.running():
                loop.kill()
                loop.wait()
        for kind, times in sorted(soak.done.items()):
            print_line(f"fault: {kind}", times, "times")
        print_line("time", time.monotonic() - started, "s")
        wrong = judge(soak, server, Path(name))
    for text in wrong:
        sys.stderr.write(f"wrong: {text}\n")
    if wrong:
        sys.exit(1)


def endure(soak: Soak, server: S3Server, deadline: float) -> None:
    """Run loops and let faults happen until every window is taken; then run once more in peace."""
    taken = 0
    while taken < WINDOWS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{taken} of {WINDOWS} windows after {PATIENCE_S} s")
        if not soak.running():
            soak.start()
        time.sleep(soak.chance.uniform(1, LONGEST_CALM_S))
        soak.harm()
        if (now := len(history_of(server).latest_windows)) >= taken + 25:
            taken = now
            sys.stderr.write(f"{taken} windows, {sum(soak.done.values())} faults\n")
        taken = max(taken, now)
    for loop in soak.running():
        loop.wait()
    soak.start()
    soak.loops[-1].wait()


def judge(soak: Soak, server: S3Server, folder: Path) -> list[str]:
    """Print what the soak left, and return what of it is wrong."""
    history = history_of(server)
    registry = Registry.open(folder / "judge", "soak", f"http://127.0.0.1:{soak.tracking.port}")
    taken = Counter(record.window.id for record in history.windows)
    outcomes = Counter(record.outcome for record in history.latest_windows.values())
    registered = [training.version for training in history.trainings if training.version]
    client = boto3.client("s3", **access(server, server.endpoint_url))
    scored = {record.window.id for record in history.windows if record.outcome == "scored"}
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=server.bucket, Prefix="store/scores/soak/"
    )
    stored = {Path(item["Key"]).stem for page in pages for item in page.get("Contents", [])}
    for outcome, count in sorted(outcomes.items()):
        print_line(f"windows {outcome}", count, "windows")
    print_line("trainings", len(history.trainings), "trainings")
    print_line("ledger entries", len(history.entries), "entries")
    print_line("most memory of a loop", max(soak.resident) / 2**20, "MiB")
    quarter = len(soak.resident) // 4
    print_line(
        "memory of loops, last quarter to first",
        float(np.median(soak.resident[-quarter:]) / np.median(soak.resident[:quarter])),
        "times",
    )
    print_line("disk of home", size_of(soak.home) / 2**20, "MiB")
    print_line("database of MLflow", (folder / "server.db").stat().st_size / 2**20, "MiB")
    print_line("temporary files left", sum(1 for _ in (folder / "temporary").rglob("*")), "files")
    left = processes_of(soak.home)
    aliases = registry.aliases()
    wrong = {
        f"windows taken more or less than once: {[key for key, count in taken.items() if count != 1][:5]}": (
            len(taken) != WINDOWS or set(taken.values()) != {1}
        ),
        f"windows were set aside: {[r.reason for r in history.windows if r.outcome != 'scored'][3:6]}": (
            outcomes.keys() - {"scored", "bootstrap"} != set()
        ),
        f"scores of {sorted(scored ^ stored)[:5]} are missing or too many": scored != stored,
        f"aliases are {aliases}, the ledger's champion is {history.champion}": (
            history.champion is None or aliases.champion != history.champion
        ),
        f"versions are {registry.versions()}, the ledger knows {registered}": (
            sorted(registry.versions()) != sorted(registered)
        ),
        f"processes are left: {left}": bool(left),
        f"a claim is open: {history.open_claim}": history.open_claim is not None,
    }
    return [text for text, holds in wrong.items() if holds]


if __name__ == "__main__":
    main()
