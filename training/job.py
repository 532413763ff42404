"""`python -m training.job JOB.json`, on each rank under the launcher: from two Parquet files to an artifact.

Rank 0 writes the artifact and, last of all, `result.json` into the job's output folder. A rank that fails
writes `error-rank-<rank>.json` there; its exit code says whether the same job may succeed later.
"""

import hashlib
import json
import os
import platform
import shutil
import sys
import time
import traceback
import warnings
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pandas as pd
from pydantic import TypeAdapter

from training import artifact, heartbeat
from training.calibrators import CalibrationScores, ThresholdSpec
from training.checkpoint import Checkpoints
from training.dataset import read_sample, read_shard
from training.detectors import detector
from training.errors import FloodmarkError, RetryableError, TrainingFailedError
from training.outcome import LOST_PEER, RESULT, RankError, error_file
from training.preprocessing import Preprocessing, fit_preprocessing
from training.scorer import Scorer, open_network, score_rows
from training.storage import Place
from training.supervised_feed import with_known_anomalies
from training.threshold import calibrate
from training.types import TrainingJob, TrainingRequest, TrainingResult

if TYPE_CHECKING:
    from training.fit import Fitted

ARTIFACT = "artifact"
CHECKPOINTS = "checkpoints"
EXIT_TERMINAL = 70
EXIT_RETRYABLE = 75
REFERENCE_ROWS = 10_000
CHECKED_ROWS = 256
PACKAGES = ("floodmark", "horovod", "keras", "numpy", "onnxruntime", "pandas", "tensorflow")


def train(job: TrainingJob) -> None:
    """Train one model with all ranks; see the module's text for what is left behind.

    Raises:
        FloodmarkError: No model was written, and why.
    """
    from training import distributed  # noqa: PLC0415 - TensorFlow reads the environment that `main` prepares
    from training.fit import fit, hold_in_memory  # noqa: PLC0415 - likewise
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
    columns = request.schema.names()
    shard = read_shard(Path(job.training_rows), columns, rank, size)
    preprocessing = fit_preprocessing(request.schema, shard, distributed.gather)
    features = preprocessing.transform(shard)
    del shard  # the features take its place in memory
    options = detector(request.detector)
    rows = hold_in_memory(features, options.validation_share, request.seed)
    feed = with_known_anomalies(rows, job, preprocessing, rank, size)
    checkpoints = _checkpoints(job, preprocessing)
    keeper = Keeper(checkpoints, every_seconds=job.checkpoint_seconds)
    weight = request.supervision.anomaly_weight
    heartbeat.phase("builds the network")
    fitted = fit(options, feed, request.seed, keeper, anomaly_weight=weight)

    heartbeat.phase("exports and calibrates")
    # Calibration scores come from the network that will be deployed, on every rank.
    exported = export(fitted, Path(job.output)) if rank == 0 else b""
    network = distributed.gather(np.frombuffer(exported, dtype=np.uint8)).tobytes()
    session = open_network(network, threads=_threads())
    held_out = read_shard(Path(job.calibration_rows), columns, rank, size)
    parity, disparity = _parity(fitted, session, preprocessing, held_out.head(CHECKED_ROWS))
    distributed.fail_together(disparity)
    scores = _in_file_order(distributed.gather(score_rows(session, preprocessing, held_out)), size)
    anomalous = np.empty(0)
    if job.calibration_anomalies is not None:
        anomalies = read_shard(Path(job.calibration_anomalies), columns, rank, size)
        anomalous = distributed.gather(score_rows(session, preprocessing, anomalies))
    threshold = calibrate(
        _threshold_spec(request),
        CalibrationScores(normal=scores, anomalous=anomalous, rows_per_day=job.rows_per_day),
    )

    if rank == 0:
        result = TrainingResult(
            request_id=request.id,
            world_size=size,
            rows=fitted.rows,
            epochs=fitted.epochs,
            loss=fitted.loss,
            seconds=time.monotonic() - started,
            threshold=threshold,
            artifact=str(Path(job.output) / ARTIFACT),
        )
        measured = {"onnx_parity": parity, "figures_of_epochs": [asdict(item) for item in fitted.figures]}
        _write_artifact(job, result, preprocessing, network, scores, measured)
        write_atomically(Path(job.output) / RESULT, json.dumps(asdict(result), indent=2) + "\n")
        checkpoints.remove()


def _checkpoints(job: TrainingJob, preprocessing: Preprocessing) -> Checkpoints:
    """Return this request's checkpoints; they fit the data that made this preprocessing, and this code."""
    place = Place.at(job.checkpoints or Path(job.output) / CHECKPOINTS).child(job.request.id)
    fits = hashlib.sha256((preprocessing.to_json() + _code_digest()).encode()).hexdigest()
    return Checkpoints(place=place, request_id=job.request.id, fits=fits)


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is either absent or complete, whenever this process ends."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _threshold_spec(request: TrainingRequest) -> ThresholdSpec:
    return ThresholdSpec(
        method=request.threshold_method,
        target_alert_rate=request.target_alert_rate,
        beta=request.threshold_beta,
        alerts_per_day=request.alerts_per_day,
    )


def export(fitted: "Fitted", output: Path) -> bytes:
    """Return the scoring model as ONNX, through Keras and tf2onnx."""
    path = output / "network.partial.onnx"
    fitted.model(
        np.zeros((1, *fitted.model.input_shape[1:]), dtype=np.float32)
    )  # Keras exports called models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf2onnx is older than NumPy 2 and says so at length
        fitted.model.export(path, format="onnx", verbose=False)
    network = path.read_bytes()
    path.unlink()
    return network


def _parity(
    fitted: "Fitted", session: onnxruntime.InferenceSession, preprocessing: Preprocessing, rows: pd.DataFrame
) -> tuple[float, str | None]:
    """Return how far the exported network's scores are from the trained one's, and if that is wrong."""
    trained = np.asarray(fitted.model(preprocessing.transform(rows)))
    exported = score_rows(session, preprocessing, rows)
    furthest = float(np.abs(trained - exported).max(initial=0.0))
    if np.allclose(trained, exported, rtol=1e-4, atol=1e-6):
        return furthest, None
    return furthest, f"the exported network scores up to {furthest} away from the trained one"


def _in_file_order(gathered: np.ndarray, size: int) -> np.ndarray:
    """Undo the dealing of rows to ranks: rank r's values belong to rows r, r + size, r + 2 size, ..."""
    ordered = np.empty_like(gathered)
    first = 0
    for rank in range(size):
        last = first + len(range(rank, gathered.size, size))
        ordered[rank::size] = gathered[first:last]
        first = last
    return ordered


def _write_artifact(  # noqa: PLR0913, PLR0917 - the parts of the artifact
    job: TrainingJob,
    result: TrainingResult,
    preprocessing: Preprocessing,
    network: bytes,
    scores: np.ndarray,
    measured: dict[str, object],
) -> None:
    """Write the folder that `training.artifact` describes, `measured` into its lineage, and seal it."""
    folder, request = Path(result.artifact), job.request
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier attempt, which left no result
    folder.mkdir(parents=True)
    columns = request.schema.names()
    check_rows = read_sample(Path(job.calibration_rows), columns, CHECKED_ROWS, request.seed)
    scorer = Scorer(
        schema=request.schema,
        threshold=result.threshold,
        preprocessing=preprocessing,
        session=open_network(network),
    )
    (folder / artifact.NETWORK).write_bytes(network)
    (folder / artifact.PREPROCESSING).write_text(preprocessing.to_json())
    for name, value in (
        (artifact.SCHEMA, asdict(request.schema)),
        (artifact.THRESHOLD, asdict(result.threshold)),
        (artifact.LINEAGE, _lineage(request, result) | measured),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    np.save(folder / artifact.CALIBRATION_SCORES, scores)
    for name, rows in ((artifact.REFERENCE, job.reference_rows), (artifact.HELD_OUT, job.held_out_rows)):
        sample = read_sample(Path(rows), None, REFERENCE_ROWS, request.seed)
        sample.to_parquet(folder / name, index=False)
    check_rows.to_parquet(folder / artifact.CHECK_ROWS, index=False)
    np.save(folder / artifact.CHECK_SCORES, scorer.score(check_rows))
    artifact.seal(folder)


def _lineage(request: TrainingRequest, result: TrainingResult) -> dict[str, object]:
    figures = {name: getattr(result, name) for name in ("world_size", "rows", "epochs", "loss", "seconds")}
    versions = {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    return {
        "request_id": request.id,
        "request": asdict(request),
        "code_sha256": _code_digest(),
        "versions": versions,
        **figures,
    }


def _code_digest() -> str:
    """Return a digest of this package's sources, which says more than a version between two releases."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(f"{path.relative_to(Path(__file__).parent)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a checkout that was never installed
        return "not installed"


def _threads() -> int:
    """Return this rank's share of the cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("HOROVOD_LOCAL_SIZE", "1")))


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
    write_atomically(error_file(output, report.rank), json.dumps(asdict(report), indent=2) + "\n")
    return retryable


def main(path: str) -> int:
    """Run this rank of the job at `path`; return its exit code."""
    job = TypeAdapter(TrainingJob).validate_json(Path(path).read_bytes())
    _prepare_environment()
    heartbeat.start()
    try:
        train(job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the pool must read it
        retryable = _write_error(Path(job.output), error)
        traceback.print_exception(error)
        return EXIT_RETRYABLE if retryable else EXIT_TERMINAL
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
