"""From raw rows to anomaly scores, with NumPy and ONNX Runtime alone: no TensorFlow, no Horovod."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
from pydantic import TypeAdapter

from training import artifact
from training.preprocessing import Preprocessing
from training.types import FeatureSchema, Threshold

ROWS_PER_CALL = 65_536
"""Bounds the memory of one call of the network, whatever the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A sealed artifact, loaded: scores and threshold always come from the same folder."""

    schema: FeatureSchema
    threshold: Threshold
    preprocessing: Preprocessing
    session: onnxruntime.InferenceSession

    @classmethod
    def load(cls, folder: Path) -> "Scorer":
        """Load a sealed artifact after checking it against its manifest.

        Raises:
            InvalidArtifactError: The folder is not a complete, unchanged artifact.
        """
        artifact.verify(folder)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return cls(
            schema=TypeAdapter(FeatureSchema).validate_json((folder / artifact.SCHEMA).read_bytes()),
            threshold=TypeAdapter(Threshold).validate_json((folder / artifact.THRESHOLD).read_bytes()),
            preprocessing=Preprocessing.from_json((folder / artifact.PREPROCESSING).read_text()),
            session=onnxruntime.InferenceSession(
                str(folder / artifact.NETWORK), options, providers=["CPUExecutionProvider"]
            ),
        )

    def score(self, frame: pd.DataFrame) -> np.ndarray:
        """Return one float64 anomaly score per row of `frame`, higher being more anomalous.

        Raises:
            InvalidWindowError: A feature is missing or is not of its column's kind.
        """
        (name,) = [item.name for item in self.session.get_inputs()]
        scores = [
            self.session.run(
                None, {name: self.preprocessing.transform(frame.iloc[start : start + ROWS_PER_CALL])}
            )[0]
            for start in range(0, len(frame), ROWS_PER_CALL)
        ]
        return np.concatenate(scores).astype(np.float64).reshape(-1) if scores else np.empty(0)
