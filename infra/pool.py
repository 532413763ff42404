"""Where trainings run: a pool takes a job and returns its result, or raises what the failing rank said."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import psutil
from pydantic import TypeAdapter, ValidationError

import training
from infra import bound_child
from training import artifact
from training.errors import FloodmarkError, InvalidArtifactError, RetryableError, TrainingFailedError
from training.outcome import ERRORS, LOST_PEER, RESULT, RankError
from training.types import TrainingJob, TrainingResult

INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    *("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH", "CUDA_VISIBLE_DEVICES"),
)
"""All that the ranks see of this environment: horovodrun writes its own onto command lines, where every user
of the machine can read it, so nothing passes that is not known to be harmless."""
EXCHANGE_TIMEOUT_S = 120
"""How long a rank waits for another in one exchange; the first covers the tracing of the network."""
GRACE_S = 15.0
TAIL_LINES = 30


class Pool(Protocol):
    """Trains `job`, with `folder` for its own files, within `timeout` seconds."""

    def __call__(self, job: TrainingJob, folder: Path, *, timeout: float) -> TrainingResult:
        """Return the result; see `train_on_this_machine` for the errors."""


def train_on_this_machine(job: TrainingJob, folder: Path, *, timeout: float) -> TrainingResult:
    """Train with horovodrun on this machine, over its loopback interface.

    A result that is already there for the same request is returned at once. However this call ends, by its
    timeout, an exception or the death of this process, no rank is left running.

    Raises:
        TrainingFailedError: A rank failed and would fail again; with its own message and traceback.
        RetryableError: The time ran out, or a rank was lost from outside.
    """
    finished = _result(job)
    if finished is not None:
        return finished
    output = Path(job.output)
    for path in (folder, output):
        path.mkdir(parents=True, exist_ok=True)
    for stale in output.glob(ERRORS):
        stale.unlink()
    description = folder / "job.json"
    description.write_text(json.dumps(asdict(job), indent=2) + "\n")
    log = folder / "training.log"
    exit_code = _launch(_command(job.request.world_size, description), folder, log, timeout)
    finished = _result(job)
    if finished is None:
        raise _failure(output, log, exit_code)
    return finished


POOLS: dict[str, Pool] = {"local": train_on_this_machine}
"""The pools by name."""


def _command(world_size: int, description: Path) -> list[str]:
    horovodrun = str(Path(sys.executable).parent / "horovodrun")
    ranks = ("--gloo", "--disable-cache", "-np", str(world_size), "-H", f"localhost:{world_size}")
    return [horovodrun, *ranks, sys.executable, "-m", "training.job", str(description)]


def _launch(command: list[str], folder: Path, log: Path, timeout: float) -> int:
    """Run `command` under its supervisor and return its exit code; in the end nothing of it is left."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ} | {
        "PYTHONPATH": str(Path(training.__file__).parents[1]),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(EXCHANGE_TIMEOUT_S),
    }
    supervisor = (sys.executable, "-P", str(Path(bound_child.__file__)), str(os.getpid()))
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 - a command of our own
            [*supervisor, *command],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            process_group=0,  # an interrupt from the terminal reaches this process, which ends the ranks
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise RetryableError(
                f"the training did not end within {timeout:g} s and was stopped",
                hint=f"No model was written. Its log is {log}; allow more time, or more ranks.",
            ) from error
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the supervisor, which ends every rank, and see to it that they are gone."""
    if process.poll() is not None:
        return
    descendants = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for survivor in psutil.wait_procs(descendants, timeout=0)[1]:
        survivor.kill()
    left = psutil.wait_procs(descendants, timeout=GRACE_S)[1]
    if left:
        raise RetryableError(
            f"processes of the training could not be ended: {', '.join(str(item.pid) for item in left)}",
            hint="They wait for a disk or a GPU, most likely; see to them before training again.",
        )


def _result(job: TrainingJob) -> TrainingResult | None:
    """Return the result of exactly this request, if there is one with a whole artifact."""
    try:
        result = TypeAdapter(TrainingResult).validate_json((Path(job.output) / RESULT).read_bytes())
        artifact.verify(Path(result.artifact))
    except (FileNotFoundError, ValidationError, InvalidArtifactError):
        return None
    return result if result.request_id == job.request.id else None


def _failure(output: Path, log: Path, exit_code: int) -> FloodmarkError:
    """Return the error of a rank that failed by itself, not of one that lost a peer; terminal ones first."""
    reader = TypeAdapter(RankError)
    errors = [reader.validate_json(path.read_bytes()) for path in sorted(output.glob(ERRORS))]
    causes = sorted(
        (error for error in errors if error.type != LOST_PEER),
        key=lambda error: (error.retryable, error.rank),
    )
    if not causes:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
        return RetryableError(
            f"the training ended with exit code {exit_code}, and no rank said why",
            hint=f"A rank was killed from outside, or out of memory. The end of {log}:\n{tail}",
        )
    cause = causes[0]
    kind = RetryableError if cause.retryable else TrainingFailedError
    return kind(
        f"rank {cause.rank} failed: {cause.type}: {cause.message}",
        hint=f"No model was written. Its log is {log}.\n{cause.traceback}",
    )
