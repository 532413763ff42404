"""Known anomalies beside the rows of a training: how often each is drawn, and which rank takes it when."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from training.dataset import read_shard
from training.encoding import Features
from training.feed import Chunk, Feed, Positions, dealt
from training.preprocessing import Preprocessing
from training.types import TrainingJob


def with_known_anomalies(
    feed: Feed, job: TrainingJob, preprocessing: Preprocessing, rank: int, size: int
) -> Feed:
    """Return the feed with the job's known anomalies among its rows, where supervision asks for them.

    Raises:
        InvalidWindowError: Their file is no readable Parquet file, or lacks columns.
    """
    request = job.request
    if not request.supervision.anomaly_weight or job.training_anomalies is None:
        return feed
    known = read_shard(job.training_anomalies, request.schema.names(), 0, 1)
    if known.empty:
        return feed
    return SupervisedFeed(
        feed,
        preprocessing.transform(known),
        share=request.supervision.anomaly_share,
        seed=request.seed,
        rank=rank,
        size=size,
    )


class SupervisedFeed:
    """Another feed's rows, and known anomalies among them.

    Every rank holds all anomalies: they are few, and each rank gets its share of those that an epoch draws,
    however they lie in the data. What is drawn does not depend on the number of ranks.

    Args:
        feed: The rows.
        anomalies: All known anomalies, (anomalies, width), at least one; the same on every rank.
        share: Of the rows of an epoch that are to be anomalies; None takes each once.
        seed: Of their order.
        rank: This rank, of `size`.
        size: The number of ranks.
    """

    def __init__(  # noqa: PLR0913 - what all ranks agree on, and what is this one's
        self, feed: Feed, anomalies: Features, *, share: float | None, seed: int, rank: int, size: int
    ) -> None:
        self.width, self.rows = feed.width, feed.rows
        self.training_rows, self.validation_rows = feed.training_rows, feed.validation_rows
        self.steps, self.validation, self.parts = feed.steps, feed.validation, feed.parts
        self._feed, self._anomalies, self._share = feed, anomalies, share
        self._seed, self._rank, self._size = seed, rank, size
        self._joined: tuple[Features, Features] | None = None

    def chunks(self, epoch: int, batch_rows: int, first_step: int = 0) -> Iterator[Chunk]:
        """Yield the feed's chunks, with anomalies in each step."""
        drawn = draw(len(self._anomalies), self.training_rows, self._share, (self._seed, epoch))
        own, ends = dealt(np.arange(len(drawn)) % self._size == self._rank, self.steps(batch_rows))
        for chunk in self._feed.chunks(epoch, batch_rows, first_step):
            here = ends[chunk.first_step : chunk.first_step + chunk.steps + 1]
            places = len(chunk.rows) + drawn[own[here[0] : here[-1]]]
            yield replace(
                chunk,
                rows=self._join(chunk.rows),
                order=np.insert(chunk.order, np.repeat(chunk.bounds[1:], np.diff(here)), places),
                bounds=chunk.bounds + here - here[0],
                known_from=len(chunk.rows),
            )

    def _join(self, rows: Features) -> Features:
        """Return the rows and the anomalies as one array; the same one for the same rows."""
        if self._joined is None or self._joined[0] is not rows:
            self._joined = None  # before the next are joined
            self._joined = rows, np.concatenate([rows, self._anomalies])
        return self._joined[1]


def draw(known: int, rows: int, share: float | None, seed: tuple[int, int]) -> Positions:
    """Return which of the `known` anomalies stand beside `rows` rows, in their order.

    None is drawn more than once more often than another.
    """
    count = known if share is None else max(1, round(rows * share / (1 - share)))
    generator = np.random.default_rng(seed)
    passes = [generator.permutation(known) for _ in range(math.ceil(count / known))]
    return np.concatenate(passes)[:count]
