"""What every rank does for test_training_two_ranks: it writes down what it saw, for the test to compare.

Not a test itself: the test starts it once under horovodrun with two ranks, and once alone.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import pydantic
import tensorflow as tf

from training import distributed
from training.dataset import read_shard
from training.detectors import Detector, Features, Parts, Total
from training.detectors.autoencoder import Autoencoder
from training.errors import TrainingFailedError
from training.fit import Fitted, fit
from training.intake import hold_in_memory
from training.preprocessing import fit_preprocessing
from training.types import Column, FeatureSchema

COLUMNS = (*(Column(name=name, kind="numeric") for name in "abcd"), Column(name="word", kind="categorical"))
WHOLE = 10**6


class Recorder:
    """A network of one weight that writes down the rows it is shown."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.weights = [keras.Variable(1.0)]

    def losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors
        """Write down the first feature, which is the number of the row."""
        assert seed.shape == (2,)
        tf.py_function(lambda rows: self.seen.extend(rows.numpy()[:, 0].tolist()), [batch], [])
        return tf.square(self.weights[0].value) * tf.ones(tf.shape(batch)[0])

    validation_losses = losses

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - no model
        """Score nothing."""
        assert total(np.ones(1))[0] == distributed.size()
        return sum(len(part) for part in parts())


def fit_rows(detector: Detector, features: Features) -> Fitted:
    """Fit on rows that are in memory."""
    return fit(detector, hold_in_memory(features, detector.validation_share, seed=3), seed=3)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config={"arbitrary_types_allowed": True})
class Recorded(Detector):
    """The detector that uses it."""

    recorder: Recorder

    def batch_rows(self, rows: int) -> int:
        """Divide into steps that do not come out even."""
        return rows // 7

    def build(self, width: int) -> Recorder:
        """Return that network."""
        assert width == 1
        return self.recorder


def refusal(action: Callable[[], object]) -> str:
    """Return the message with which `action` is refused, or an empty text."""
    try:
        action()
    except TrainingFailedError as error:
        return error.message
    return ""


def main(folder: Path) -> None:
    """Go through the checks and write down this rank's observations."""
    distributed.start()
    rank, size = distributed.rank(), distributed.size()
    schema = FeatureSchema(features=COLUMNS)
    shard = read_shard(folder / "rows.parquet", [*schema.names(), "row"], rank, size)
    preprocessing = fit_preprocessing(schema, shard, distributed.gather)
    features = preprocessing.transform(shard)

    # One step an epoch over all rows: as many ranks as there are must come to the same weights.
    whole = Autoencoder(
        optimizer="sgd", learning_rate=0.1, noise=0, epochs=5, smallest_batch=WHOLE, largest_batch=WHOLE
    )
    fitted = fit_rows(whole, features)
    model: Any = fitted.model
    # From equal weights, the mean of the ranks' next weights is one step along the mean gradient.
    averaged = fit_rows(dataclasses.replace(whole, local_steps=2), features)
    short = dataclasses.replace(whole, smallest_batch=512, largest_batch=512, exchange="float16")
    halves = fit_rows(short, features)
    halved_changes = fit_rows(dataclasses.replace(short, local_steps=2), features)
    clipped = dataclasses.replace(whole, clip_norm=0.01, clipping="after_averaging", local_steps=1)
    everything = preprocessing.transform(read_shard(folder / "rows.parquet", schema.names(), 0, 1))
    np.savez(
        folder / f"rank-{rank}-of-{size}.npz",
        *model.get_weights(),
        scores=np.asarray(fitted.model(everything)),
        scores_of_averaged=np.asarray(averaged.model(everything)),
        scores_of_clipped=np.asarray(fit_rows(clipped, features).model(everything)),
    )

    recorder = Recorder()
    recorded = Recorded(
        recorder=recorder, optimizer="sgd", learning_rate=0.1, epochs=2, patience=5, validation_share=0.2
    )
    fit_rows(recorded, shard[["row"]].to_numpy(np.float32))
    seen = list(recorder.seen)
    recorder.weights.append(keras.Variable(1.0, name="idle"))
    single_rows = Autoencoder(epochs=2, smallest_batch=1, largest_batch=1)
    spoilt = np.where(rank == size - 1, np.float32(np.nan), features)
    observed = {
        "rows": shard["row"].tolist(),
        "preprocessing": preprocessing.to_json(),
        "loss": fitted.loss,
        "seen": seen,
        "gathered": distributed.gather(np.arange(rank + 1)).tolist(),
        "loss_of_local_steps": fit_rows(Autoencoder(epochs=3, local_steps=3), features).loss,
        "losses_of_float16": [halves.loss, halved_changes.loss],
        "loss_of_clipped_ranks": fit_rows(
            dataclasses.replace(clipped, clipping="before_averaging"), features
        ).loss,
        "loss_of_clipped": fit_rows(clipped, features).loss,
        "loss_of_bfloat16": fit_rows(Autoencoder(epochs=3, precision="mixed_bfloat16"), features).loss,
        "no_gradient": refusal(lambda: fit_rows(recorded, features[:, :1])),
        "loss_of_steps": fit_rows(Autoencoder(epochs=3), features).loss,
        "loss_of_single_rows": fit_rows(single_rows, features[:20]).loss,
        "not_finite": refusal(lambda: fit_rows(whole, spoilt)),
        "diverged": refusal(lambda: fit_rows(Autoencoder(learning_rate=1e30), features)),
        "other_tensorflow": refusal(lambda: distributed.require_build_for("2.0.0")),
        "weights_differ": refusal(
            lambda: distributed.assert_equal_weights([keras.Variable(float(rank))], "on purpose")
        ),
    }
    with patch.object(
        distributed, "sum_over_ranks", lambda tensors, _: list(tensors)
    ):  # the ranks no longer exchange anything
        observed["never_synchronised"] = refusal(lambda: fit_rows(whole, features))
    (folder / f"rank-{rank}-of-{size}.json").write_text(json.dumps(observed))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
