"""MLflow's own server on loopback, through which artifacts go too."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

STARTUP_S, END_S = 90, 30


@contextmanager
def serving(
    folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Start a server on `server.db` in a folder, and yield its address and its process; end it after."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--workers": "1",
        "--backend-store-uri": f"sqlite:///{folder / 'server.db'}",
        "--artifacts-destination": str(folder / "served"),
    }
    command = [sys.executable, "-m", "mlflow", "server", "--serve-artifacts"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *(word for option in options.items() for word in option)],
            stdout=log,
            stderr=log,
            cwd=folder,
            # Eight processes fewer without jobs.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **(environment or {})},
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, folder / "server.log")
        yield f"http://127.0.0.1:{port}", process
    finally:
        stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a server that was started here, with the workers of its session."""
    if process.poll() is None:
        os.killpg(process.pid, 15)
        process.wait(timeout=END_S)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + STARTUP_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - a server of this test
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
