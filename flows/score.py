"""`floodmark score`: the rows of a file of any size, scored by the champion. Changes nothing else."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from flows.installation import Champion
from infra.scored_file import check_target, read_batches, writing
from infra.tables import CsvFormat
from monitoring.frames import clean_frame
from training.errors import InvalidWindowError

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
    batches = (with_scores(batch, champion) for batch in read_batches(source, csv, texts=texts))
    first = next(batches, None)
    if first is None:
        raise InvalidWindowError(f"{source} holds no rows; nothing was written")
    rows = alerts = 0
    with writing(out, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            rows, alerts = rows + batch.num_rows, alerts + batch["is_anomaly"].true_count
    return Scored(rows=rows, alerts=alerts)


def with_scores(batch: pa.RecordBatch, champion: Champion) -> pa.RecordBatch:
    """Append the four columns to a batch of rows.

    Raises:
        InvalidWindowError: A feature is missing or of another kind, a score is not finite, or the input has
            a column of one of these names.
    """
    if taken := [name for name in ADDED if name in batch.schema.names]:
        raise InvalidWindowError(f"the input has columns named {', '.join(taken)}, which are to be added")
    names = [name for name in champion.schema.names() if name in batch.schema.names]
    scores = champion.scorer.score(clean_frame(batch.select(names).to_pandas(), champion.schema))
    if broken := int((~np.isfinite(scores)).sum()):
        raise InvalidWindowError(f"{broken} of {len(scores)} scores are not finite; nothing was written")
    threshold, rows = champion.scorer.threshold.value, len(scores)
    added = {
        "anomaly_score": pa.array(scores),
        "threshold": pa.array(np.full(rows, threshold)),
        "is_anomaly": pa.array(scores > threshold),
        "model_version": pa.array([champion.version] * rows, pa.string()),
    }
    fields = [pa.field(name, values.type) for name, values in added.items()]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *added.values()], schema=pa.schema([*batch.schema, *fields])
    )
