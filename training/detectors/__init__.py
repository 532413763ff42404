"""The detectors by name. One is a file beside this one that follows `Detector`, and a line in the table."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from training.detectors.options import FitOptions
from training.errors import ConfigurationError
from training.types import DetectorSpec

Features = npt.NDArray[np.float32]
Total = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""Adds up one array per rank; the identity where there is one rank."""
Parts = Callable[[], Iterator[Features]]
"""Yields this rank's rows in parts (rows, width), as often as it is called; see `Network` for windows."""


class Ranks(Protocol):
    """The ranks of a training, as the module `training.distributed` offers them."""

    def rank(self) -> int:
        """Return the position of this one, from 0."""

    def size(self) -> int:
        """Return their number."""

    def gather(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Concatenate one array per rank along its first axis, in the order of the ranks; all get it."""


class ScoringModel(Protocol):
    """From features (rows, width) to scores (rows,), higher is more anomalous; a Keras model is one."""

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Of its features, the rows first, which are None."""

    def __call__(self, features: Any) -> Any:  # noqa: ANN401 - tensors or arrays
        """Return the scores of `features`."""

    def export(self, filepath: Any, *, format: str, verbose: bool) -> None:  # noqa: A002, ANN401 - as in Keras
        """Write the model to `filepath` as ONNX, the only `format` that is asked for."""


class Network(Protocol):
    """A network to be fitted. Tensors are TensorFlow's, typed as Any so that this module needs none.

    A detector of sequences reads windows: where it says (rows, width) below, it has (windows, length, width),
    losses are per window (windows,), and scores per place in each window, (windows, length).
    """

    @property
    def weights(self) -> Sequence[Any]:
        """Its trainable Keras variables."""

    def losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors, see above
        """Return the loss of each row, (rows,), of `batch` (rows, width); `seed` (2,) decides any noise."""

    def validation_losses(self, batch: Any, seed: Any) -> Any:  # noqa: ANN401 - tensors, see above
        """Return the loss of each row, (rows,), that chooses the best epoch; `losses` where it can."""

    def scoring_model(self, parts: Parts, total: Total) -> Any:  # noqa: ANN401 - a Keras model
        """Return a Keras model from features (rows, width) to scores (rows,), higher is more anomalous.

        `parts()` goes over this rank's training rows, a part (rows, width) at a time: all of them need not
        fit memory. Statistics taken from them go through `total`, so that all ranks hold the same, and into
        the model as plain constants.
        """


class Detector(FitOptions):
    """The validated options of a detector that the fit loop fits; its config inherits and adds to them."""

    __slots__ = ()

    def build(self, width: int) -> Network:
        """Build the network for `width` features."""
        raise NotImplementedError


@runtime_checkable
class DirectDetector(Protocol):
    """The validated options of a detector that is fitted in one go and leaves the fit loop nothing to do."""

    @property
    def validation_share(self) -> float:
        """As of `Detector`; nothing is held out, but the rows must be enough for it."""

    @property
    def window_rows(self) -> int:
        """As of `Detector`."""

    def fit_directly(self, parts: Parts, seed: int, ranks: Ranks) -> ScoringModel:
        """Fit on the rows of all ranks, of which `parts()` are this one's; return the same model on each."""


AnyDetector = Detector | DirectDetector

DETECTORS: dict[str, str] = {
    "autoencoder": "training.detectors.autoencoder:Autoencoder",
    "vae": "training.detectors.vae:Vae",
    "gan": "training.detectors.gan:Gan",
    "pca": "training.detectors.pca:Pca",
    "isolation_forest": "training.detectors.isolation_forest:Forest",
    "lstm_autoencoder": "training.detectors.lstm_autoencoder:LstmAutoencoder",
    "conv_autoencoder": "training.detectors.conv_autoencoder:ConvAutoencoder",
    "transformer_autoencoder": "training.detectors.transformer_autoencoder:TransformerAutoencoder",
}
"""Import strings: naming a detector must not import TensorFlow."""

BASELINES = frozenset({"pca", "isolation_forest"})
"""What others are judged by; the promotion policy lets them wait for a person."""


def detector(spec: DetectorSpec) -> AnyDetector:
    """Return the detector that `spec` names, with its options validated; imports no TensorFlow.

    Raises:
        ConfigurationError: The name or an option is unknown, or a value is not allowed.
    """
    if spec.name not in DETECTORS:
        raise ConfigurationError(f"unknown detector {spec.name!r}", hint=f"Allowed: {', '.join(DETECTORS)}.")
    module, _, name = DETECTORS[spec.name].partition(":")
    config = getattr(import_module(module), name)
    try:
        return cast("AnyDetector", config(**spec.options))
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(map(str, item['loc']))} = {item['input']!r}: {item['msg']}"
            if item["loc"]
            else item["msg"].removeprefix("Value error, ")  # of options that do not go together
            for item in error.errors()
        )
        options = ", ".join(field.name for field in dataclasses.fields(config))
        raise ConfigurationError(
            f"wrong options of the detector {spec.name!r}: {details}", hint=f"Its options are {options}."
        ) from error


def check_options(spec: DetectorSpec, *, supervised: bool = False) -> None:
    """Check a detector's name and options where no training runs.

    Raises:
        ConfigurationError: The name or an option is unknown, a value is not allowed, or known anomalies
            are to take part in the training of a detector that takes none.
    """
    if isinstance(detector(spec), DirectDetector) and supervised:
        raise ConfigurationError(
            f"detector {spec.name!r} is fitted to normal rows alone: supervision.anomaly_weight must be 0",
            hint="leave out [supervision], or choose a detector that is trained in epochs",
        )
