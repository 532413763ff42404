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
import pandas as pd
import pyarrow as pa

from flows.installation import Champion
from infra.scored_file import check_target, read_batches, writing
from infra.tables import CsvFormat
from monitoring.plain_columns import context_of_batch, encode_batch
from training.conformal import Counts, discovery_mark, level_counts
from training.errors import InvalidWindowError

Item = TypeVar("Item")
Done = TypeVar("Done")

MOST_FEATURES = 1 << 29
"""Values of features that sequences of one file may have together: two gibibytes, held at once."""
ADDED = ("anomaly_score", "threshold", "is_anomaly", "model_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """How many rows were scored, and how many of them are alerts."""

    rows: int
    alerts: int


def score_file(  # noqa: PLR0913 - the options of the command
    champion: Champion,
    source: Path,
    out: Path,
    csv: CsvFormat,
    *,
    force: bool,
    false_discovery_rate: float | None = None,
) -> Scored:
    """Write the rows of `source` with score, flood mark, alert and version beside them.

    With a `false_discovery_rate`, the mark is not the model's but this file's: the expected share of normal
    rows among its alerts is at most that. The file is then read twice. A file of sequences is read once
    more, and its features are held at once.

    Raises:
        ConfigurationError: A path is wrong, or `out` exists and `force` is not given.
        InvalidWindowError: Rows cannot be read or scored; nothing is written then.
    """
    check_target(out, source, force=force)
    scorer = champion.scorer
    texts = frozenset([*champion.schema.names("categorical"), *scorer.context])
    whole = None
    if scorer.sequences is not None:
        whole = sequence_scores(champion, read_batches(source, csv, texts=texts))
    mark = scorer.threshold.value
    if false_discovery_rate is not None:
        again = scored(champion, read_batches(source, csv, texts=texts), whole)
        mark = mark_of(champion, again, false_discovery_rate)
    read = scored(champion, read_batches(source, csv, texts=texts), whole)
    rows = alerts = 0
    with closing(in_order(partial(with_scores, champion=champion, mark=mark), read)) as batches:
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


Batch = tuple[pa.RecordBatch, Callable[[], np.ndarray]]
"""Rows, and what returns their scores: where rows stand alone, each thread computes those of its batch."""


def scored(
    champion: Champion, batches: Iterable[pa.RecordBatch], whole: np.ndarray | None
) -> Generator[Batch]:
    """Yield batches with their scores, which are those of `whole` (rows,) where that is given."""
    first = 0
    for batch in batches:
        if whole is None:
            yield batch, partial(finite_scores, batch, champion)
        else:
            own = whole[first : first + batch.num_rows]
            yield batch, partial(np.asarray, own)
        first += batch.num_rows


def sequence_scores(champion: Champion, batches: Iterable[pa.RecordBatch]) -> np.ndarray:
    """Return the scores of all rows of a file (rows,), which are read as sequences, in any order.

    Raises:
        InvalidWindowError: A column is missing or of another kind, a row has no time or entity, a score is
            not finite, or the file is too large.
    """
    scorer, features, context, values = champion.scorer, [], [], 0
    for batch in batches:
        features.append(encode_batch(batch, scorer))
        context.append(context_of_batch(batch, scorer))
        values += features[-1].size
        if values > MOST_FEATURES:
            most = MOST_FEATURES // features[-1].shape[1]
            raise InvalidWindowError(
                f"a file of sequences may have {most} rows of these features",
                hint="nothing was written; score it in several files, cut where sequences have gaps",
            )
    if not features:
        return np.empty(0)
    stretches = scorer.stretches(pd.concat(context, ignore_index=True))
    return checked(scorer.score_features(np.concatenate(features), stretches))


def mark_of(champion: Champion, batches: Iterable[Batch], false_discovery_rate: float) -> float:
    """Return the mark above which these rows are discoveries: their conformal p-values are counted."""
    calibration = champion.calibration_scores

    def count(batch: Batch) -> Counts:
        return level_counts(calibration, batch[1]())

    with closing(in_order(count, batches)) as counted:
        counts = sum(counted, start=np.zeros(calibration.size + 1, dtype=np.int64))
    return discovery_mark(calibration, counts, false_discovery_rate)


def with_scores(scored_batch: Batch, champion: Champion, mark: float) -> pa.RecordBatch:
    """Append the four columns to a batch of rows.

    Raises:
        InvalidWindowError: A feature is missing or of another kind, a score is not finite, or the input has
            a column of one of these names.
    """
    batch, scores_of = scored_batch
    if taken := [name for name in ADDED if name in batch.schema.names]:
        raise InvalidWindowError(
            f"the input has columns named {', '.join(taken)}, which are to be added",
            hint="nothing was written; leave them out of the input, or rename them",
        )
    scores = scores_of()
    rows = len(scores)
    added = {
        "anomaly_score": pa.array(scores),
        "threshold": pa.repeat(mark, rows),
        "is_anomaly": pa.array(scores > mark),
        "model_version": pa.repeat(champion.version, rows),
    }
    fields = [pa.field(name, values.type) for name, values in added.items()]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *added.values()], schema=pa.schema([*batch.schema, *fields])
    )


def finite_scores(batch: pa.RecordBatch, champion: Champion) -> np.ndarray:
    """Return the champion's scores of a batch (rows,).

    Raises:
        InvalidWindowError: A feature is missing or of another kind, or a score is not finite.
    """
    return checked(champion.scorer.score_features(encode_batch(batch, champion.scorer)))


def checked(scores: np.ndarray) -> np.ndarray:
    """Return scores that are all finite.

    Raises:
        InvalidWindowError: One is not.
    """
    if broken := int((~np.isfinite(scores)).sum()):
        raise InvalidWindowError(f"{broken} of {len(scores)} scores are not finite; nothing was written")
    return scores
