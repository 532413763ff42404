"""The model's artifact on disk: one folder, every file under a checksum, nothing pickled.

manifest.json            format version and the SHA-256 of every other file
network.onnx             float32 features (rows, width) -> score (rows,); of sequences, windows
                         (windows, length, width) -> score of each place (windows, length)
preprocessing.json       raw columns -> features
schema.json              the feature schema
sequences.json           the length of windows and the maximal gap, only where rows are read as sequences; the
                         tables below then hold whole stretches, told apart by their column floodmark_stretch
threshold.json           the flood mark
lineage.json             the request, code, library versions and figures of the training and of each of its
                         epochs, and how far the exported network scores from the trained one (onnx_parity)
calibration_scores.npy   float64 (calibration rows,)
reference.parquet        a sample of the raw training and calibration rows, as they arrived ...
held_out.parquet         ... and of those not trained on: what drift checks compare with
check_rows.parquet       raw rows that were scored where the model was trained ...
check_scores.npy         ... and their scores, float64, to be reproduced wherever it is loaded
"""

import hashlib
import json
from pathlib import Path

from pydantic import TypeAdapter

from training.errors import InvalidArtifactError
from training.types import EpochFigures, TrainingRequest

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
NETWORK = "network.onnx"
PREPROCESSING = "preprocessing.json"
SCHEMA = "schema.json"
THRESHOLD = "threshold.json"
LINEAGE = "lineage.json"
CALIBRATION_SCORES = "calibration_scores.npy"
REFERENCE = "reference.parquet"
HELD_OUT = "held_out.parquet"
CHECK_ROWS = "check_rows.parquet"
CHECK_SCORES = "check_scores.npy"
REQUIRED = (
    NETWORK,
    PREPROCESSING,
    SCHEMA,
    THRESHOLD,
    LINEAGE,
    CALIBRATION_SCORES,
    REFERENCE,
    HELD_OUT,
    CHECK_ROWS,
    CHECK_SCORES,
)


SEQUENCES = "sequences.json"


def seal(folder: Path) -> None:
    """Write the manifest over the files of `folder`, as the last act of a training.

    Raises:
        InvalidArtifactError: A required file is missing.
    """
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        raise InvalidArtifactError(f"the model artifact {folder} lacks {', '.join(missing)}")
    manifest = {
        "format_version": FORMAT_VERSION,
        "sha256": {name: _digest(folder / name) for name in _names(folder)},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def verify(folder: Path) -> None:
    """Check every file of `folder` against its manifest.

    Raises:
        InvalidArtifactError: The manifest is missing, of another format, or does not match the files.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        version, digests = manifest["format_version"], dict(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArtifactError(f"{folder} holds no readable {MANIFEST}: {error}") from error
    if version != FORMAT_VERSION:
        raise InvalidArtifactError(f"{folder} has format version {version}; this code reads {FORMAT_VERSION}")
    wrong = [
        name
        for name in {*_names(folder), *digests}
        if not (folder / name).is_file() or _digest(folder / name) != digests.get(name)
    ]
    if wrong:
        raise InvalidArtifactError(f"truncated or exchanged in {folder}: {', '.join(sorted(wrong))}")


def read_request(folder: Path) -> TrainingRequest:
    """Return the request that the training in `folder` answered."""
    lineage = json.loads((folder / LINEAGE).read_text())
    return TypeAdapter(TrainingRequest).validate_python(lineage["request"])


def read_epochs(folder: Path) -> tuple[EpochFigures, ...]:
    """Return the figures of the epochs of the training in `folder`; none where it has none."""
    lineage = json.loads((folder / LINEAGE).read_text())
    return TypeAdapter(tuple[EpochFigures, ...]).validate_python(lineage.get("figures_of_epochs", []))


def _names(folder: Path) -> list[str]:
    """Return the files that belong to the artifact."""
    return [*REQUIRED, *([SEQUENCES] if (folder / SEQUENCES).exists() else [])]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
