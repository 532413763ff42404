"""Rows files of sequences: what one rank reads of them, and samples of whole stretches.

Such a file has the column `STRETCH`, and its rows stand in the order of their stretches.
"""

import numpy as np
import pandas as pd

from training.dataset import Source, read_places, read_range, read_sample
from training.sequences import STRETCH, Positions, keep_rows, numbered, run_bounds
from training.split import cut_blocks


def read_stretches(path: Source) -> Positions:
    """Read the column `STRETCH` of a rows file, (rows,).

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    frame = read_sample(path, [STRETCH], np.iinfo(np.int64).max, seed=0)
    return frame[STRETCH].to_numpy(np.int64)


def read_in_context(
    path: Source, columns: list[str], length: int, rank: int, size: int
) -> tuple[pd.DataFrame, slice]:
    """Read one rank's share of a rows file, and beside it all rows that windows of `length` share with it.

    Shares are consecutive: those of all ranks, one after the other, are the file. Scored within what is read,
    a share's rows have the scores that they have within the whole file.

    Returns:
        What was read, with the column `STRETCH`, and where the share stands in it.

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    rows = len(read_stretches(path))
    first, last = (rows * place // size for place in (rank, rank + 1))
    begin = max(0, first - length + 1)
    frame = read_range(path, [*columns, STRETCH], begin, min(rows, last + length - 1))
    return frame, slice(first - begin, last - begin)


def read_block_sample(path: Source, rows: int, length: int, seed: int) -> pd.DataFrame:
    """Read about `rows` rows in whole blocks of time, drawn with `seed`; all where there are no more.

    Raises:
        InvalidWindowError: The file is no readable Parquet file.
    """
    stretch = read_stretches(path)
    blocks = cut_blocks(run_bounds(stretch), length)
    order = np.random.default_rng(seed).permutation(len(blocks) - 1)
    enough = np.searchsorted(np.cumsum(np.diff(blocks)[order]), min(rows, len(stretch))) + 1
    kept = np.isin(numbered(blocks), order[:enough])
    sample = read_places(path, None, np.flatnonzero(kept))
    whole = pd.DataFrame({STRETCH: stretch})
    return sample.assign(**{STRETCH: keep_rows(whole, kept)[STRETCH].to_numpy()})
