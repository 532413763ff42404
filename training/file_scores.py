"""A rows file scored by all ranks together, each its share; all of them get all scores."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnxruntime
import pandas as pd

from training import heartbeat
from training.dataset import Source, open_rows, stripe
from training.preprocessing import Gather, Preprocessing
from training.scorer import score_rows
from training.sequence_files import read_in_context
from training.sequences import Sequences, find_stretches
from training.types import FeatureSchema

COUNTED = "floodmark_counted"
"""A column of truth values: rows where it is false are there as the context of others alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScorer:
    """The network that will be deployed, on one of the ranks; `sequences` is None for tables."""

    session: onnxruntime.InferenceSession
    preprocessing: Preprocessing
    schema: FeatureSchema
    sequences: Sequences | None
    rank: int
    size: int
    gather: Gather

    def shares(self, source: Source) -> Iterator[tuple[pd.DataFrame, slice]]:
        """Read this rank's consecutive share of rows, each time with where what counts stands in it.

        Rows that stand for themselves come a few thousand at a time, of sequences all at once.

        Raises:
            InvalidWindowError: A file is no readable Parquet file.
        """
        columns = [*self.schema.names(), COUNTED]
        if self.sequences is not None:
            yield read_in_context(source, columns, self.sequences.length, self.rank, self.size)
            return
        rows = open_rows(source)
        for frame in rows.frames(columns, *stripe(rows.rows, self.rank, self.size)):
            heartbeat.tick()
            yield frame, slice(None)

    def score(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Score rows as `shares` reads them, (rows,)."""
        if self.sequences is None:
            return score_rows(self.session, self.preprocessing, frame)
        stretches = find_stretches(frame, self.schema, self.sequences.max_gap_seconds)
        return score_rows(self.session, self.preprocessing, frame, stretches, self.sequences.length)

    def scores(self, source: Source) -> npt.NDArray[np.float64]:
        """Score rows, of those with the column `COUNTED` only what counts; in their order."""
        parts = [np.empty(0)]
        for frame, own in self.shares(source):
            scores = self.score(frame)[own]
            parts.append(scores[frame[COUNTED].to_numpy(bool)[own]] if COUNTED in frame else scores)
        return self.gather(np.concatenate(parts))
