"""`floodmark score`: the rows of a file of any size, scored by the champion. Changes nothing else."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from flows.installation import Champion
from infra.scored_file import check_target, read_batches, writing
from infra.tables import CsvFormat
from monitoring.plain_columns import encode_batch
from training.errors import InvalidWindowError

Item = TypeVar("Item")
Done = TypeVar("Done")

ADDED = ("anomaly_score", "threshold", "is_anomaly", "model_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """How many rows were scored, and how many of them are alerts."""

    rows: int
    alerts: int


def score_file(champion: Champion, source: Path, out: Path, csv: CsvFormat, *, force: bool) -> Scored:
    """Write the rows of `source` with score, flood mark, alert and version beside them.

    Raises:
        ConfigurationError: A path is wrong, or `out` exists and `force` is not given.
        InvalidWindowError: Rows cannot be read or scored; nothing is written then.
    """
    check_target(out, source, force=force)
    texts = frozenset(champion.schema.names("categorical"))
    read = read_batches(source, csv, texts=texts)
    rows = alerts = 0
    with closing(in_order(partial(with_scores, champion=champion), read)) as batches:
        first = next(batches, None)
        if first is None:
            raise InvalidWindowError(f"{source} holds no rows; nothing was written")
        with writing(out, first) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
                rows, alerts = rows + batch.num_rows, alerts + batch["is_anomaly"].true_count
    return Scored(rows=rows, alerts=alerts)


def in_order(work: Callable[[Item], Done], items: Iterable[Item]) -> Generator[Done]:
    """Yield `work` of every item in their order, with a thread a core; few items are held at a time."""
    threads = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[Future[Done]] = deque()
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) > threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def with_scores(batch: pa.RecordBatch, champion: Champion) -> pa.RecordBatch:
    """Append the four columns to a batch of rows.

    Raises:
        InvalidWindowError: A feature is missing or of another kind, a score is not finite, or the input has
            a column of one of these names.
    """
    if taken := [name for name in ADDED if name in batch.schema.names]:
        raise InvalidWindowError(f"the input has columns named {', '.join(taken)}, which are to be added")
    scores = champion.scorer.score_features(encode_batch(batch, champion.scorer))
    if broken := int((~np.isfinite(scores)).sum()):
        raise InvalidWindowError(f"{broken} of {len(scores)} scores are not finite; nothing was written")
    threshold, rows = champion.scorer.threshold.value, len(scores)
    added = {
        "anomaly_score": pa.array(scores),
        "threshold": pa.repeat(threshold, rows),
        "is_anomaly": pa.array(scores > threshold),
        "model_version": pa.repeat(champion.version, rows),
    }
    fields = [pa.field(name, values.type) for name, values in added.items()]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *added.values()], schema=pa.schema([*batch.schema, *fields])
    )
