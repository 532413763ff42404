"""The default detector's network as one would train it with Keras alone: `fit`, on all cores.

Prints the rows a second of the median epoch after the first, and the training loss of the last epoch.
"""

import json
import sys
import time

import keras
import numpy as np


class Clock(keras.callbacks.Callback):  # type: ignore[misc] # keras has no types
    """The seconds of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Begin."""
        del epoch, logs
        self.begun = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """End."""
        del epoch, logs
        self.seconds.append(time.monotonic() - self.begun)


def main(path: str, batch: int, epochs: int) -> None:
    """Train on the rows at `path`, a tenth of them held out."""
    keras.utils.set_random_seed(0)
    rows = np.load(path)
    training, held_out = rows[: int(0.9 * len(rows))], rows[int(0.9 * len(rows)) :]
    width = rows.shape[1]
    inputs = keras.Input((width,))
    hidden = keras.layers.Dense(128, "relu")(keras.layers.GaussianNoise(0.6)(inputs))
    hidden = keras.layers.Dense(128, "relu")(keras.layers.Dense(min(64, width))(hidden))
    network = keras.Model(inputs, keras.layers.Dense(width)(hidden))
    rates = keras.optimizers.schedules.CosineDecay(2e-3, epochs * -(-len(training) // batch))
    network.compile(keras.optimizers.Adam(rates), "mse")
    clock = Clock()
    history = network.fit(
        training,
        training,
        batch_size=batch,
        epochs=epochs,
        validation_data=(held_out, held_out),
        callbacks=[clock],
        verbose=0,
    )
    rate = len(training) / float(np.median(clock.seconds[1:]))
    sys.stdout.write(json.dumps({"rows_per_second": rate, "loss": history.history["loss"][-1]}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
