"""`floodmark serve` beside `mlflow models serve`, on one registered champion of 41 columns (NSL-KDD).

One row at a time: an open loop of 200 requests a second from a process of its own; latencies count from when
a request was due, so that a queue shows. Batches: the same 1,000 rows again and again over one connection.
The alias: from the registry's answer to the first score by the other version.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import onnx
import pandas as pd
import pyarrow as pa

import artifacts
from infra.registry import Registry
from infra.score_request import ARROW_STREAM
from training import artifact
from training.preprocessing import fit_preprocessing
from training.scorer import Scorer
from training.types import TrainingRequest, TrainingResult

from .champions import schema_of
from .lines import Line

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "nsl-kdd" / "stream"
NOT_FEATURES = ["event_time", "label"]
RATE = 200
SECONDS = 20
TIMEOUT_SECONDS = 10.0
"""What a request counts that is not answered: MLflow's server drops some at this rate."""
BATCH = 1_000
REPEATS = 45
LIMIT_MS, LIMIT_ALIAS_S = 10.0, 2.0
PEER = "mlflow models serve"


def main() -> None:
    """Print every line of the benchmark `serving`."""
    rows = pd.concat(
        [pd.read_parquet(path) for path in sorted(DATA.glob("*.parquet"))[:3]], ignore_index=True
    )
    rows = rows.drop(columns=NOT_FEATURES, errors="ignore")
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        folder = Path(name)
        registry = register(folder, rows)
        body = {"rows": json.loads(rows[:1].to_json(orient="records"))}
        theirs = {"dataframe_split": json.loads(rows[:1].to_json(orient="split", index=False))}
        with server(folder, ours(folder), "/health/ready") as url:
            own = open_loop(folder, f"{url}/score", body)
            own_batches = {
                "rows": batches(f"{url}/score", {"rows": rows[:BATCH].to_dict("records")}),
                "columns": batches(f"{url}/score", {"columns": rows[:BATCH].to_dict("list")}),
                "Arrow": batches(f"{url}/score", as_stream(rows[:BATCH])),
            }
            moved = alias_changes(registry, f"{url}/score", body)
        with server(folder, mlflow(registry), "/ping") as url:
            split = {"dataframe_split": json.loads(rows[:BATCH].to_json(orient="split", index=False))}
            peer_batch = batches(f"{url}/invocations", split)
            peer = open_loop(folder, f"{url}/invocations", theirs)
        assert max(own) < TIMEOUT_SECONDS * 1e3, "floodmark serve left requests unanswered"
    single = f"one row, {RATE} requests/s"
    for share in (50, 99):
        value, peer_value = (float(np.percentile(times, share)) for times in (own, peer))
        print_line(single, f"latency, p{share}", value, "ms", (PEER, peer_value))
    print_line(single, "latency, p99", float(np.percentile(own, 99)), "ms", ("the limit", LIMIT_MS))
    for case, speed in own_batches.items():
        print_line(f"{BATCH} rows as {case}", "rows a second", speed, "rows/s", (PEER, peer_batch))
    print_line("alias", "move to first answer, longest", max(moved), "s", ("the limit", LIMIT_ALIAS_S))


def print_line(case: str, metric: str, value: float, unit: str, peer: tuple[str, float]) -> None:
    """Print one figure beside the peer's; of rates more is better, and of times less."""
    name, peer_value = peer
    ratio = value / peer_value if unit == "rows/s" else peer_value / value
    Line(
        bench="serving",
        case=case,
        metric=metric,
        value=value,
        unit=unit,
        peer=name,
        peer_value=peer_value,
        ratio=ratio,
    ).print()


def register(folder: Path, rows: pd.DataFrame) -> Registry:
    """Register the linear detector of these columns twice; version 1 is the champion."""
    registry = Registry.open(folder / "home", "floodmark")
    for seed in (0, 1):
        request = replace(artifacts.training_request(seed=seed), schema=schema_of(rows))
        sample = rows.sample(2_000, random_state=seed)
        registry.register(request, build(folder / f"artifact-{seed}", request, sample), reason="benchmark")
    registry.set_alias("champion", "1")
    return registry


def build(folder: Path, request: TrainingRequest, rows: pd.DataFrame) -> TrainingResult:
    """Fit and seal principal components of `rows`."""
    folder.mkdir()
    preprocessing = fit_preprocessing(request.schema, rows, lambda array: array)
    *_, directions = np.linalg.svd(preprocessing.transform(rows), full_matrices=False)
    onnx.save(artifacts._network(directions[:10]), folder / artifact.NETWORK)  # noqa: SLF001 - its neighbour
    (folder / artifact.PREPROCESSING).write_text(preprocessing.to_json())
    (folder / artifact.SCHEMA).write_text(json.dumps(asdict(request.schema)))
    (folder / artifact.LINEAGE).write_text(json.dumps({"request": asdict(request)}))
    for name in (artifact.REFERENCE, artifact.HELD_OUT, artifact.CHECK_ROWS):
        rows.to_parquet(folder / name)
    artifacts._seal(folder, request, np.zeros(1), np.zeros(1))  # noqa: SLF001 - likewise
    scores = Scorer.load(folder).score(rows)
    threshold = artifacts._seal(folder, request, scores, scores)  # noqa: SLF001 - likewise
    return TrainingResult(
        request_id=request.id,
        world_size=1,
        rows=len(rows),
        epochs=1,
        loss=float(scores.mean()),
        seconds=0.1,
        threshold=threshold,
        artifact=str(folder),
    )


def ours(folder: Path) -> list[str]:
    """Return the command of our server, but for its port."""
    return [str(Path(sys.executable).parent / "floodmark"), "serve", "--home", str(folder / "home"), "--port"]


def mlflow(registry: Registry) -> list[str]:
    """Return the command of MLflow's server, but for its port."""
    os.environ["MLFLOW_TRACKING_URI"] = registry.tracking_uri
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # it looks for uvicorn there
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local"]
    return [*command, "--model-uri", "models:/floodmark@champion", "--host", "127.0.0.1", "--port"]


@contextmanager
def server(folder: Path, command: list[str], probe: str) -> Iterator[str]:
    """Run a server until it is no longer needed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([*command, str(port)], stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                httpx.get(f"{url}{probe}", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline, (folder / "server.log").read_text()
                time.sleep(0.2)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 15)
        process.wait(30)


def open_loop(folder: Path, url: str, body: dict[str, object]) -> list[float]:
    """Return the latencies in milliseconds that a process of its own measured."""
    (folder / "body.json").write_text(json.dumps(body))
    command = [sys.executable, "-m", "tests.bench.serving", url, str(folder / "body.json")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    latencies: list[float] = json.loads(done.stdout)
    return latencies


def batches(url: str, body: dict[str, object] | bytes) -> float:
    """Return the rows a second of `BATCH` rows at a time, the median of `REPEATS`."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": ARROW_STREAM if isinstance(body, bytes) else "application/json"}
    target, taken = urlsplit(url), []
    with closing(HTTPConnection(str(target.hostname), target.port, timeout=60)) as connection:
        for _ in range(REPEATS + 2):
            started = time.perf_counter()
            connection.request("POST", target.path, content, headers)
            answer = connection.getresponse()
            assert answer.status == HTTPStatus.OK, answer.read()
            answer.read()
            taken.append(time.perf_counter() - started)
    return BATCH / statistics.median(taken[2:])


def as_stream(rows: pd.DataFrame) -> bytes:
    """Write rows as an Arrow stream."""
    table, sink = pa.Table.from_pandas(rows, preserve_index=False), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def alias_changes(registry: Registry, url: str, body: dict[str, object]) -> list[float]:
    """Return the seconds from each move of the alias to the first answer by the version that it names."""
    taken = []
    with httpx.Client(timeout=60) as client:
        for version in ("2", "1", "2", "1", "2", "1"):
            registry.set_alias("champion", version)
            started = time.perf_counter()
            while client.post(url, json=body).raise_for_status().json()["model_version"] != version:
                time.sleep(0.002)
            taken.append(time.perf_counter() - started)
    return taken


async def load(url: str, content: bytes) -> list[float]:
    """Send requests when they are due, whether earlier ones are answered or not.

    Over bare sockets: on a machine of two cores a client library would take more than the server does.
    """
    target = urlsplit(url)
    head = f"POST {target.path} HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def one(due: float) -> float:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                if not idle:
                    idle.append(await asyncio.open_connection(target.hostname, target.port))
                reader, writer = idle.pop()
                writer.write(request)
                told = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    line for line in told.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                await reader.readexactly(int(length.split(b":")[1]))
        except (OSError, EOFError, TimeoutError):  # the connection is given up
            return TIMEOUT_SECONDS * 1e3
        assert told.startswith(b"HTTP/1.1 200"), told
        idle.append((reader, writer))
        return (time.perf_counter() - due) * 1e3

    for _ in range(20):
        await one(0)
    started, tasks = time.perf_counter(), []
    for number in range(int(RATE * SECONDS)):
        due = started + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    return list(await asyncio.gather(*tasks))


if __name__ == "__main__":
    json.dump(asyncio.run(load(sys.argv[1], Path(sys.argv[2]).read_bytes())), sys.stdout)
