"""What every rank does for test_detectors: it fits each detector and writes down what came of it.

Not a test itself: the test starts it once under horovodrun with two ranks, and once alone.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from training import distributed
from training.detectors import DETECTORS, Detector, Features, detector
from training.detectors.autoencoder import Autoencoder
from training.export import export_network
from training.fit import Fitted, fit
from training.intake import hold_in_memory
from training.scorer import open_network
from training.sequences import ScoreWindows, Stretches, mean_scores
from training.supervised_feed import SupervisedFeed
from training.types import DetectorSpec
from training.window_feed import WindowFeed, WindowPlan

ROWS, WIDTH = 401, 6
"""Odd, so that the shards of two ranks differ."""
EPOCHS = 8


def make_rows(rows: int, seed: int) -> Features:
    """Make rows in a plane, with a little noise: standardised features as a detector sees them."""
    generator = np.random.default_rng(seed)
    plane = np.random.default_rng(0).standard_normal((2, WIDTH)) / np.sqrt(2)
    noise = 0.1 * generator.standard_normal((rows, WIDTH))
    return np.asarray(generator.standard_normal((rows, 2)) @ plane + noise, dtype=np.float32)


def make_outliers(rows: int) -> Features:
    """Push two features of each row far out, against each other."""
    outliers = make_rows(rows, 3)
    outliers[:, 0] += 5
    outliers[:, 1] -= 5
    return outliers


def fitted(name: str, seed: int) -> Fitted:
    """Fit the detector `name`, if by the loop then for a few epochs, on this rank's rows."""
    loops = isinstance(detector(DetectorSpec(name=name)), Detector)
    spec = DetectorSpec(name=name, options={"epochs": EPOCHS} if loops else {})
    options, rows = detector(spec), make_rows(ROWS, 1)
    if options.window_rows == 1:
        own = rows[distributed.rank() :: distributed.size()]
        return fit(options, hold_in_memory(own, options.validation_share, seed), seed)
    plan = WindowPlan.of(
        np.zeros(ROWS, dtype=np.int64),
        length=options.window_rows,
        validation_share=options.validation_share,
        seed=seed,
        rank=distributed.rank(),
        size=distributed.size(),
    )
    return fit(options, WindowFeed(rows[slice(*plan.rows)], plan, seed), seed)


def scores(score: ScoreWindows, features: Features, window_rows: int) -> list[float]:
    """Return the scores of `features`, which are one sequence where the detector reads such."""
    if window_rows == 1:
        return [float(value) for value in np.asarray(score(features)).reshape(-1)]
    whole = Stretches(order=np.arange(len(features)), bounds=np.array([0, len(features)]))
    scored = mean_scores(lambda part: np.asarray(score(part)), features, whole, window_rows)
    return [float(value) for value in scored]


def observe(name: str, folder: Path) -> dict[str, Any]:
    """Fit one detector and write down what the test compares."""
    normal, outliers = make_rows(100, 2), make_outliers(100)
    first, rows = fitted(name, 5), detector(DetectorSpec(name=name)).window_rows
    observed = {
        "rows": first.rows,
        "loss": first.loss,
        "normal": scores(first.model, normal, rows),
        "outliers": scores(first.model, outliers, rows),
    }
    if distributed.size() == 1:
        session = open_network(export_network(first, folder), threads=1)
        (network_input,) = session.get_inputs()

        def exported(features: Features) -> np.ndarray:
            scored: np.ndarray = session.run(None, {network_input.name: features})[0]
            return scored

        observed["exported"] = [*scores(exported, normal, rows), *scores(exported, outliers, rows)]
        observed["repeated"] = scores(fitted(name, 5).model, normal, rows)
        observed["other_seed"] = scores(fitted(name, 6).model, normal, rows)
    return observed


def supervise(weight: float) -> dict[str, Any]:
    """Fit with known anomalies, one step an epoch over all rows."""
    own = make_rows(ROWS, 1)[distributed.rank() :: distributed.size()]
    options = Autoencoder(
        optimizer="sgd", learning_rate=0.05, noise=0, epochs=10, smallest_batch=10**6, largest_batch=10**6
    )
    feed = SupervisedFeed(
        hold_in_memory(own, options.validation_share, 3),
        make_outliers(7),
        share=0.2,
        seed=3,
        rank=distributed.rank(),
        size=distributed.size(),
    )
    taken = [len(chunk.order) - np.sum(chunk.order < len(own)) for chunk in feed.chunks(1, 10**6)]
    model = fit(options, feed, 3, anomaly_weight=weight).model
    return {
        "taken": int(sum(taken)),
        "training_rows": feed.training_rows,
        "normal": scores(model, make_rows(50, 2), 1),
        "outliers": scores(model, make_outliers(50), 1),
    }


def main(folder: Path) -> None:
    """Go through the table and write down this rank's observations."""
    distributed.start()
    observed = {name: observe(name, folder) for name in DETECTORS}
    observed |= {"supervised": supervise(1.0), "taken_for_normal": supervise(0.0)}
    place = f"rank-{distributed.rank()}-of-{distributed.size()}.json"
    (folder / place).write_text(json.dumps(observed))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
