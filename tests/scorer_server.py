"""A `floodmark serve` of its own process, and a home whose alias the tests move."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from artifacts import build_artifact, training_request
from champions import champion_home
from command import FLOODMARK, environment
from infra.registry import Registry

MODEL = "floodmark"
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """A running server, its client and what it has printed."""

    process: "subprocess.Popen[bytes]"
    client: httpx.Client
    output: Path

    @property
    def log(self) -> str:
        """Everything that it has printed."""
        return self.output.read_text()

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.client.base_url)

    def ready(self) -> dict[str, Any]:
        """What it says of itself."""
        found: dict[str, Any] = self.client.get("/health/ready").json()
        return found

    def wait_for(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return what it says of itself once that is so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not what(found := self.ready()):
            assert time.monotonic() < deadline, (found, self.log)
            time.sleep(0.05)
        return found

    def stop(self) -> int:
        """Tell it to end and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def serving(home: Path, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `floodmark serve` on a free port until the end of the block."""
    output = home / "serve.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [FLOODMARK, "serve", "--home", home, "--port", "0", "--poll-seconds", "0.1", *options],
            cwd=home,
            env=environment(env),
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := re.search(r"http://\S+(?=/score)", output.read_text())):
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        with httpx.Client(base_url=found.group(), timeout=PATIENCE_SECONDS) as client:
            yield Server(process, client, output)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE_SECONDS)


def registered_home(folder: Path) -> Path:
    """Make a home with versions 1 and 2, of other scores and thresholds each, of which 1 is the champion."""
    home = champion_home(folder)
    registry = Registry.open(home, MODEL)
    request = training_request(seed=1)
    registry.register(request, build_artifact(folder / "second", request, rows=1_000), reason="test")
    registry.set_alias("champion", "1")
    return home


def copied(home: Path, target: Path) -> Registry:
    """Give a test a registry of its own below `target`, with the artifacts of `home`."""
    target.mkdir(parents=True)
    shutil.copy(home / "mlflow.db", target / "mlflow.db")
    return Registry.open(target, MODEL)
