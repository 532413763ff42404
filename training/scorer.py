"""From raw rows to anomaly scores, with NumPy and ONNX Runtime alone: no TensorFlow, no Horovod."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pandas as pd
from pydantic import TypeAdapter

from training import artifact
from training.encoding import Features
from training.preprocessing import Preprocessing
from training.types import FeatureSchema, Threshold

ROWS_PER_CALL = 65_536
"""Bounds the memory of the features, whatever the number of rows."""
ROWS_PER_RUN = 4_096
"""That the network scores at a time: what its layers hand on stays in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A sealed artifact, loaded: scores and threshold always come from the same folder."""

    schema: FeatureSchema
    threshold: Threshold
    preprocessing: Preprocessing
    session: onnxruntime.InferenceSession

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> "Scorer":
        """Load a sealed artifact after checking it against its manifest; `threads` as for `open_network`.

        Raises:
            InvalidArtifactError: The folder is not a complete, unchanged artifact.
        """
        artifact.verify(folder)
        return cls(
            schema=TypeAdapter(FeatureSchema).validate_json((folder / artifact.SCHEMA).read_bytes()),
            threshold=TypeAdapter(Threshold).validate_json((folder / artifact.THRESHOLD).read_bytes()),
            preprocessing=Preprocessing.from_json((folder / artifact.PREPROCESSING).read_text()),
            session=open_network((folder / artifact.NETWORK).read_bytes(), threads=threads),
        )

    def score(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return one float64 anomaly score per row of `frame`, higher being more anomalous.

        Raises:
            InvalidWindowError: A feature is missing or is not of its column's kind.
        """
        return score_rows(self.session, self.preprocessing, frame)

    def score_features(self, features: Features) -> npt.NDArray[np.float64]:
        """Return one score per row of `features` (rows, width), as `preprocessing` has encoded them."""
        return _run(self.session, features)


def open_network(network: bytes, *, threads: int = 0) -> onnxruntime.InferenceSession:
    """Open an ONNX network for scoring; `threads` limits it to so many, 0 takes every core."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])


def score_rows(
    session: onnxruntime.InferenceSession, preprocessing: Preprocessing, frame: pd.DataFrame
) -> npt.NDArray[np.float64]:
    """Score raw rows, as training and serving both do.

    Raises:
        InvalidWindowError: A feature is missing or is not of its column's kind.
    """
    scores = np.empty(len(frame))
    for start in range(0, len(frame), ROWS_PER_CALL):
        part = slice(start, start + ROWS_PER_CALL)
        scores[part] = _run(session, preprocessing.transform(frame.iloc[part]))
    return scores


def _run(session: onnxruntime.InferenceSession, features: Features) -> npt.NDArray[np.float64]:
    (network_input,) = session.get_inputs()
    scores = np.empty(len(features))
    for start in range(0, len(features), ROWS_PER_RUN):
        part = slice(start, start + ROWS_PER_RUN)
        scores[part] = session.run(None, {network_input.name: features[part]})[0].reshape(-1)
    return scores
