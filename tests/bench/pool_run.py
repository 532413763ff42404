"""Trainings as the flow starts them, through the local pool, for the benchmarks of speed."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from infra.pool import POOLS
from training.types import Column, DetectorSpec, FeatureSchema, TrainingJob, TrainingRequest

RANK_THREADS = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
"""Of a rank that shall have one thread where it could have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Made rows in a folder, and what every training of a benchmark starts from.

    Attributes:
        folder: Of the rows and the trainings.
        schema: Their columns.
    """

    folder: Path
    schema: FeatureSchema

    @classmethod
    def make(cls, folder: Path, rows: int, width: int) -> "Rows":
        """Write rows that a sixth as many hidden causes explain, but for their noise, and a small part."""
        values = made(rows, width)
        frame = pd.DataFrame(values, columns=[f"sensor_{column:03}" for column in range(width)])
        frame.to_parquet(folder / "rows.parquet", index=False)
        frame.head(5_000).to_parquet(folder / "some.parquet", index=False)
        columns = tuple(Column(name=name, kind="numeric") for name in frame.columns)
        return cls(folder=folder, schema=FeatureSchema(features=columns))


@dataclass(slots=True, kw_only=True)
class Run:
    """What a training told: its events' fields, each with its time in seconds since the launch."""

    loss: float = float("nan")
    figures: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def whole_epochs(self) -> list[dict[str, Any]]:
        """Return the figures of all epochs but the first, which traces and compiles."""
        return [figures for figures in self.figures if "rows_per_second" in figures][1:]

    def rows_per_second(self) -> float:
        """Return the training rows a second, over all epochs but the first."""
        return float(np.median([figures["rows_per_second"] for figures in self.whole_epochs()]))


def made(rows: int, width: int) -> npt.NDArray[np.float32]:
    """Return standardised rows (rows, width)."""
    generator = np.random.default_rng(0)
    causes = generator.normal(size=(rows, max(1, width // 6)))
    values = np.tanh(causes @ generator.normal(size=(causes.shape[1], width)) / np.sqrt(causes.shape[1]))
    values += 0.2 * generator.normal(size=(rows, width))
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0), dtype=np.float32)


def train(
    name: str,
    rows: Rows,
    ranks: int,
    options: Mapping[str, float | int | str],
    *,
    checkpoint_seconds: float = 120.0,
) -> Run:
    """Train the default detector and return what was told; `name` is the training's folder."""
    request = TrainingRequest(
        model="bench",
        windows=(),
        schema=rows.schema,
        detector=DetectorSpec(options=dict(options)),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=ranks,
        seed=0,
        champion_version=None,
    )
    folder, some = rows.folder / name, str(rows.folder / "some.parquet")
    folder.mkdir()
    job = TrainingJob(
        request=request,
        training_rows=str(rows.folder / "rows.parquet"),
        calibration_rows=some,
        reference_rows=some,
        held_out_rows=some,
        output=str(folder / "output"),
        checkpoint_seconds=checkpoint_seconds,
    )
    run, launched = Run(), time.monotonic()

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            run.figures.append(event["figures"])
            run.seconds.append(time.monotonic() - launched)

    run.loss = POOLS["local"](job, folder, timeout=600, report=listen).loss
    return run
