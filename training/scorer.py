"""From raw rows to anomaly scores, with NumPy and ONNX Runtime alone: no TensorFlow, no Horovod."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pandas as pd
from pydantic import TypeAdapter

from training import artifact
from training.encoding import Features
from training.errors import InvalidArtifactError
from training.preprocessing import Preprocessing
from training.sequences import (
    Sequences,
    Stretches,
    context_columns,
    find_stretches,
    mean_scores,
    replaced_in_context,
)
from training.types import Column, FeatureSchema, Threshold

ROWS_PER_CALL = 65_536
"""Bounds the memory of the features, whatever the number of rows."""
ROWS_PER_RUN = 4_096
"""That the network scores at a time: what its layers hand on stays in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A sealed artifact, loaded: scores and threshold always come from the same folder.

    `sequences` is None where every row is scored for itself; else rows are scored within their sequences.
    """

    schema: FeatureSchema
    threshold: Threshold
    preprocessing: Preprocessing
    session: onnxruntime.InferenceSession
    sequences: Sequences | None = None

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> "Scorer":
        """Load a sealed artifact after checking it against its manifest; `threads` as for `open_network`.

        Raises:
            InvalidArtifactError: The folder is not a complete, unchanged artifact.
        """
        artifact.verify(folder)
        session = open_network((folder / artifact.NETWORK).read_bytes(), threads=threads)
        stored = folder / artifact.SEQUENCES
        sequences = Sequences.from_json(stored.read_text()) if stored.is_file() else None
        shape = session.get_inputs()[0].shape[1:-1]
        if shape != ([sequences.length] if sequences else []):
            raise InvalidArtifactError(
                f"the network in {folder} reads {shape or 'single'} rows together, but {artifact.SEQUENCES} "
                f"says {sequences.length if sequences else 'nothing'}"
            )
        return cls(
            schema=TypeAdapter(FeatureSchema).validate_json((folder / artifact.SCHEMA).read_bytes()),
            threshold=TypeAdapter(Threshold).validate_json((folder / artifact.THRESHOLD).read_bytes()),
            preprocessing=Preprocessing.from_json((folder / artifact.PREPROCESSING).read_text()),
            session=session,
            sequences=sequences,
        )

    def score(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return one float64 anomaly score per row of `frame`, higher being more anomalous.

        Raises:
            InvalidWindowError: A feature is missing or is not of its column's kind; or the rows are read as
                sequences, and it cannot be told which of them follow each other.
        """
        stretches = self.stretches(frame)
        return score_rows(self.session, self.preprocessing, frame, stretches, self.window_rows)

    def score_features(
        self, features: Features, stretches: Stretches | None = None
    ) -> npt.NDArray[np.float64]:
        """Return one score per row of `features` (rows, width), as `preprocessing` has encoded them.

        `stretches` are those of the rows, needed where they are read as sequences.
        """
        if (stretches is None) != (self.sequences is None):
            raise ValueError("stretches are needed where rows are read as sequences, and only there")
        return _score(self.session, features, stretches, self.window_rows)

    def score_replaced(self, frame: pd.DataFrame, replacements: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return one score per row of `replacements`, each in the place of one row of `frame`.

        Args:
            frame: Rows under a unique index; with the column `STRETCH` where it has sequences.
            replacements: Features, each row under the index of the row that it takes the place of.

        Raises:
            InvalidWindowError: As in `score`.
        """
        if self.sequences is None:
            return self.score(replacements)
        copies, places = replaced_in_context(frame, replacements, self.sequences.length)
        return self.score(copies)[places]

    def stretches(self, frame: pd.DataFrame) -> Stretches | None:
        """Find the sequences in `frame`; None where every row is scored for itself.

        Raises:
            InvalidWindowError: There is no time or entity column, or a row lacks its time or entity.
        """
        if self.sequences is None:
            return None
        return find_stretches(frame, self.schema, self.sequences.max_gap_seconds)

    @property
    def window_rows(self) -> int:
        """Rows that the network reads together."""
        return self.sequences.length if self.sequences else 1

    @property
    def asked(self) -> FeatureSchema:
        """What a score needs: the features, and beside them the columns of `context`, as if texts."""
        if self.sequences is None:
            return self.schema
        beside = (Column(name=name, kind="categorical") for name in self.context)
        return replace(self.schema, features=(*self.schema.features, *beside))

    @property
    def context(self) -> list[str]:
        """The columns beside the features that a score needs."""
        return context_columns(self.schema) if self.sequences else []


def open_network(network: bytes, *, threads: int = 0) -> onnxruntime.InferenceSession:
    """Open an ONNX network for scoring; `threads` limits it to so many, 0 takes every core."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])


def score_rows(
    session: onnxruntime.InferenceSession,
    preprocessing: Preprocessing,
    frame: pd.DataFrame,
    stretches: Stretches | None = None,
    length: int = 1,
) -> npt.NDArray[np.float64]:
    """Score raw rows, as training and serving both do: one by one, or in windows of `length` of stretches.

    Raises:
        InvalidWindowError: A feature is missing or is not of its column's kind.
    """
    parts = range(0, max(len(frame), 1), ROWS_PER_CALL)
    encoded = (preprocessing.transform(frame.iloc[start : start + ROWS_PER_CALL]) for start in parts)
    if stretches is not None:
        return _score(session, np.concatenate(list(encoded)), stretches, length)
    return np.concatenate([_score(session, features, None, 1) for features in encoded])


def _score(
    session: onnxruntime.InferenceSession, features: Features, stretches: Stretches | None, length: int
) -> npt.NDArray[np.float64]:
    (network_input,) = session.get_inputs()
    if stretches is not None:
        return mean_scores(
            lambda windows: session.run(None, {network_input.name: windows})[0], features, stretches, length
        )
    scores = np.empty(len(features))
    for start in range(0, len(features), ROWS_PER_RUN):
        part = slice(start, start + ROWS_PER_RUN)
        scores[part] = session.run(None, {network_input.name: features[part]})[0].reshape(-1)
    return scores
