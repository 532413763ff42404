"""`python -m training.job JOB.json`, on each rank under the launcher: from two Parquet files to an artifact.

Rank 0 writes the artifact and, last of all, `result.json` into the job's output folder. A rank that fails
writes `error-rank-<rank>.json` there; its exit code says whether the same job may succeed later.
"""

import hashlib
import json
import os
import shutil
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from training import heartbeat
from training.blocks import scratch_folder
from training.calibrators import CalibrationScores, ThresholdSpec
from training.checkpoint import Checkpoints
from training.detectors import detector
from training.errors import FloodmarkError, RetryableError, TrainingFailedError
from training.export import code_digest, export_network, parity_with, write_artifact
from training.file_scores import FileScorer
from training.outcome import LOST_PEER, RESULT, RankError, error_file
from training.preprocessing import Preprocessing
from training.scorer import open_network
from training.storage import Place
from training.threshold import calibrate
from training.types import TrainingJob, TrainingRequest, TrainingResult

ARTIFACT = "artifact"
CHECKPOINTS = "checkpoints"
EXIT_TERMINAL = 70
EXIT_RETRYABLE = 75


def train(job: TrainingJob) -> None:
    """Train one model with all ranks; see the module's text for what is left behind.

    Raises:
        FloodmarkError: No model was written, and why.
    """
    from training import distributed  # noqa: PLC0415 - TensorFlow reads the environment that `main` prepares
    from training.fit import fit  # noqa: PLC0415 - likewise
    from training.intake import take_in  # noqa: PLC0415 - likewise
    from training.keeper import Keeper  # noqa: PLC0415 - likewise

    started = time.monotonic()
    distributed.start()
    rank, size, request = distributed.rank(), distributed.size(), job.request
    fewest = job.fewest_ranks or request.world_size
    if not fewest <= size <= request.world_size:
        asked = f"{fewest} to {request.world_size}" if job.fewest_ranks else f"{fewest}"
        raise TrainingFailedError(
            f"{size} ranks were started for a training that asks for {asked}",
            hint="Start it through `infra.pool`, which starts as many as the request says.",
        )
    heartbeat.phase("reads and encodes the rows")
    kept = Place.at(job.checkpoints or Path(job.output) / CHECKPOINTS).child(request.id)
    options = detector(request.detector)
    try:
        taken = take_in(job, options, kept)
        checkpoints = Checkpoints(place=kept, request_id=request.id, fits=_fits(taken.preprocessing))
        keeper = Keeper(checkpoints, every_seconds=job.checkpoint_seconds)
        weight = request.supervision.anomaly_weight
        heartbeat.phase("builds the network")
        fitted = fit(options, taken.feed, request.seed, keeper, anomaly_weight=weight)
    finally:
        shutil.rmtree(scratch_folder(job, rank), ignore_errors=True)

    heartbeat.phase("exports and calibrates")
    # Calibration scores come from the network that will be deployed, on every rank.
    exported = export_network(fitted, Path(job.output)) if rank == 0 else b""
    network = distributed.gather(np.frombuffer(exported, dtype=np.uint8)).tobytes()
    session = open_network(network, threads=_threads())
    scorer = FileScorer(
        session=session,
        preprocessing=taken.preprocessing,
        schema=request.schema,
        sequences=taken.sequences,
        rank=rank,
        size=size,
        gather=distributed.gather,
    )
    parity, disparity = parity_with(fitted, scorer, job.calibration_rows)
    distributed.fail_together(disparity)
    scores, anomalous = scorer.scores(job.calibration_rows), np.empty(0)
    if job.calibration_anomalies is not None:
        anomalous = scorer.scores(job.calibration_anomalies)
    threshold = calibrate(
        _threshold_spec(request),
        CalibrationScores(normal=scores, anomalous=anomalous, rows_per_day=job.rows_per_day),
    )

    if rank == 0:
        result = TrainingResult(
            request_id=request.id,
            world_size=size,
            rows=taken.rows,
            epochs=fitted.epochs,
            loss=fitted.loss,
            seconds=time.monotonic() - started,
            threshold=threshold,
            artifact=str(Path(job.output) / ARTIFACT),
        )
        measured = {"onnx_parity": parity, "figures_of_epochs": [asdict(item) for item in fitted.figures]}
        write_artifact(job, result, scorer, network, scores, measured)
        _write(Path(job.output) / RESULT, result)
        kept.remove()


def _fits(preprocessing: Preprocessing) -> str:
    """Return a digest of what a checkpoint depends on beside the request: the data, and this code."""
    return hashlib.sha256((preprocessing.to_json() + code_digest()).encode()).hexdigest()


def _threshold_spec(request: TrainingRequest) -> ThresholdSpec:
    return ThresholdSpec(
        method=request.threshold_method,
        target_alert_rate=request.target_alert_rate,
        beta=request.threshold_beta,
        alerts_per_day=request.alerts_per_day,
    )


def _threads() -> int:
    """Return this rank's share of the cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("HOROVOD_LOCAL_SIZE", "1")))


def _adopt_mpi() -> None:
    """Take the place of this rank from Open MPI, where that has started it."""
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"):
        if (value := os.environ.get(f"OMPI_COMM_WORLD_{name}")) is not None:
            os.environ[f"HOROVOD_{name}"] = value


def _prepare_environment() -> None:
    """Set what TensorFlow reads when it is imported; what is set already stays."""
    threads = str(_threads())
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # One GPU a rank, of those it may use; without any, TensorFlow must not search for a driver.
    rank = int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    device = allowed[rank] if rank < len(allowed) and allowed[rank] else str(rank)
    os.environ["CUDA_VISIBLE_DEVICES"] = device if Path("/dev/nvidiactl").exists() else "-1"


def _write_error(output: Path, error: BaseException) -> bool:
    """Write what this rank failed of; return whether the same job may succeed later."""
    lost_peer = not isinstance(error, FloodmarkError) and "Horovod" in f"{type(error).__name__} {error}"
    retryable = lost_peer or isinstance(error, (RetryableError, OSError, MemoryError))
    report = RankError(
        rank=int(os.environ.get("HOROVOD_RANK", "0")),
        type=LOST_PEER if lost_peer else type(error).__name__,
        message=str(error) or repr(error),
        traceback="".join(traceback.format_exception(error)),
        retryable=retryable,
    )
    with suppress(RetryableError):  # no room even for this: the log has it
        _write(error_file(output, report.rank), report)
    return retryable


def _write(path: Path, said: TrainingResult | RankError) -> None:
    Place.at(path).write((json.dumps(asdict(said), indent=2) + "\n").encode())


def main(path: str) -> int:
    """Run this rank of the job at `path`; return its exit code."""
    job = TypeAdapter(TrainingJob).validate_json(Path(path).read_bytes())
    _adopt_mpi()
    _prepare_environment()
    heartbeat.start()
    try:
        train(job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the pool must read it
        traceback.print_exception(error)
        retryable = _write_error(Path(job.output), error)
        return EXIT_RETRYABLE if retryable else EXIT_TERMINAL
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
