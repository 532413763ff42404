"""A rows file scored by all ranks together, each its share; all of them get all scores."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pandas as pd

from training.dataset import read_shard
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

    def share(self, path: Path) -> tuple[pd.DataFrame, slice]:
        """Read what this rank needs of a file to score its share, and where that stands in it.

        Raises:
            InvalidWindowError: The file is no readable Parquet file.
        """
        columns = [*self.schema.names(), COUNTED]
        if self.sequences is None:
            return read_shard(path, columns, self.rank, self.size), slice(None)
        return read_in_context(path, columns, self.sequences.length, self.rank, self.size)

    def score(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Score what `share` read, (rows,)."""
        if self.sequences is None:
            return score_rows(self.session, self.preprocessing, frame)
        stretches = find_stretches(frame, self.schema, self.sequences.max_gap_seconds)
        return score_rows(self.session, self.preprocessing, frame, stretches, self.sequences.length)

    def scores(self, path: Path) -> npt.NDArray[np.float64]:
        """Score a file, of one with the column `COUNTED` only what counts; in the order of the file."""
        frame, own = self.share(path)
        scores = self.score(frame)[own]
        if COUNTED in frame:
            scores = scores[frame[COUNTED].to_numpy(bool)[own]]
        gathered = self.gather(scores)
        return in_file_order(gathered, self.size) if self.sequences is None else gathered


def in_file_order(gathered: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """Undo the dealing of rows to ranks: rank r's values belong to rows r, r + size, r + 2 size, ..."""
    ordered = np.empty_like(gathered)
    first = 0
    for rank in range(size):
        last = first + len(range(rank, gathered.size, size))
        ordered[rank::size] = gathered[first:last]
        first = last
    return ordered
