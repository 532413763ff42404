"""From a fitted network to the sealed folder that is deployed: ONNX, lineage, samples."""

import hashlib
import json
import platform
import shutil
import warnings
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from training import artifact
from training.dataset import Source, read_range, read_sample
from training.file_scores import FileScorer
from training.scorer import Scorer, open_network
from training.sequence_files import read_block_sample
from training.sequences import STRETCH, find_stretches, mean_scores
from training.storage import said_for
from training.types import TrainingJob, TrainingRequest, TrainingResult

if TYPE_CHECKING:
    from training.fit import Fitted

REFERENCE_ROWS = 10_000
CHECKED_ROWS = 256
PACKAGES = ("floodmark", "horovod", "keras", "numpy", "onnxruntime", "pandas", "tensorflow")


def export_network(fitted: "Fitted", output: Path) -> bytes:
    """Return the scoring model as ONNX, through Keras and tf2onnx.

    Raises:
        RetryableError: The disk is full; nothing of it is left.
    """
    path = output / "network.partial.onnx"
    fitted.model(
        np.zeros((1, *fitted.model.input_shape[1:]), dtype=np.float32)
    )  # Keras exports called models
    try:
        with warnings.catch_warnings(), said_for(str(path)):
            warnings.simplefilter("ignore")  # tf2onnx is older than NumPy 2 and says so at length
            fitted.model.export(path, format="onnx", verbose=False)
            return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def parity_with(fitted: "Fitted", scorer: FileScorer, path: Source) -> tuple[float, str | None]:
    """Return how far the exported network's scores are from the trained one's, and if that is wrong."""
    first = next(scorer.shares(path), None)
    if first is None:  # fewer rows than ranks
        return 0.0, None
    rows = first[0].head(CHECKED_ROWS)
    features = scorer.preprocessing.transform(rows)
    if scorer.sequences is None:
        trained = np.asarray(fitted.model(features))
    else:
        stretches = find_stretches(rows, scorer.schema, scorer.sequences.max_gap_seconds)
        trained = mean_scores(
            lambda windows: np.asarray(fitted.model(windows)), features, stretches, scorer.sequences.length
        )
    exported = scorer.score(rows)
    furthest = float(np.abs(trained - exported).max(initial=0.0))
    if np.allclose(trained, exported, rtol=1e-4, atol=1e-6):
        return furthest, None
    return furthest, f"the exported network scores up to {furthest} away from the trained one"


def write_artifact(  # noqa: PLR0913, PLR0917 - the parts of the artifact
    job: TrainingJob,
    result: TrainingResult,
    ranks: FileScorer,
    network: bytes,
    scores: np.ndarray,
    measured: dict[str, object],
) -> None:
    """Write the folder that `training.artifact` describes, `measured` into its lineage, and seal it.

    Raises:
        RetryableError: The disk is full; nothing of it is left.
    """
    folder = Path(result.artifact)
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier attempt, which left no result
    try:
        with said_for(str(folder), needed=len(network)):
            folder.mkdir(parents=True)
            _fill(folder, job, result, ranks, network, scores, measured)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _fill(  # noqa: PLR0913, PLR0917 - likewise
    folder: Path,
    job: TrainingJob,
    result: TrainingResult,
    ranks: FileScorer,
    network: bytes,
    scores: np.ndarray,
    measured: dict[str, object],
) -> None:
    request = job.request
    scorer = Scorer(
        schema=request.schema,
        threshold=result.threshold,
        preprocessing=ranks.preprocessing,
        session=open_network(network),
        sequences=ranks.sequences,
    )
    (folder / artifact.NETWORK).write_bytes(network)
    (folder / artifact.PREPROCESSING).write_text(ranks.preprocessing.to_json())
    if ranks.sequences is not None:
        (folder / artifact.SEQUENCES).write_text(ranks.sequences.to_json())
    for name, value in (
        (artifact.SCHEMA, asdict(request.schema)),
        (artifact.THRESHOLD, asdict(result.threshold)),
        (artifact.LINEAGE, _lineage(request, result) | measured),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    np.save(folder / artifact.CALIBRATION_SCORES, scores)
    for name, rows in ((artifact.REFERENCE, job.reference_rows), (artifact.HELD_OUT, job.held_out_rows)):
        _sample(rows, REFERENCE_ROWS, scorer, request.seed).to_parquet(folder / name, index=False)
    check_rows = _check_rows(job.calibration_rows, scorer, request.seed)
    check_rows.to_parquet(folder / artifact.CHECK_ROWS, index=False)
    np.save(folder / artifact.CHECK_SCORES, scorer.score(check_rows))
    artifact.seal(folder)


def _sample(path: Source, rows: int, scorer: Scorer, seed: int) -> pd.DataFrame:
    """Draw rows of a file, of sequences in whole blocks."""
    if scorer.sequences is None:
        return read_sample(path, None, rows, seed)
    return read_block_sample(path, rows, scorer.window_rows, seed)


def _check_rows(path: Source, scorer: Scorer, seed: int) -> pd.DataFrame:
    """Draw features to be scored again wherever the model is loaded."""
    columns = scorer.schema.names()
    if scorer.sequences is None:
        return read_sample(path, columns, CHECKED_ROWS, seed)
    return read_range(path, [*columns, STRETCH], 0, max(CHECKED_ROWS, 2 * scorer.window_rows))


def _lineage(request: TrainingRequest, result: TrainingResult) -> dict[str, object]:
    figures = {name: getattr(result, name) for name in ("world_size", "rows", "epochs", "loss", "seconds")}
    versions = {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    return {
        "request_id": request.id,
        "request": asdict(request),
        "code_sha256": code_digest(),
        "versions": versions,
        **figures,
    }


def code_digest() -> str:
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
