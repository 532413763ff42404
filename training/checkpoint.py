"""Where a training stands, kept so that a killed one goes on from there; arrays and JSON, nothing pickled.

A checkpoint is one file: a line of JSON (format version, request, what it fits, progress, SHA-256 of the
rest), and the arrays in NumPy's npz. It does not depend on the number of ranks. Rank 0 alone writes and reads
them. The last two are kept, so that a damaged one costs no more than the steps since the one before.
"""

import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from training.storage import Place
from training.types import EpochFigures

FORMAT_VERSION = 1
SUFFIX = ".checkpoint"
KEPT = 2

Arrays = Sequence[npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training has come.

    Attributes:
        epoch: The one under way, from 1.
        step: Steps of it that are done.
        loss_sum: Of the rows of all ranks in them.
        best_epoch: The epoch with the lowest validation loss so far; 0 before the first.
        best_loss: That loss, a mean over rows.
        figures: Of the epochs that are done.
    """

    epoch: int = 1
    step: int = 0
    loss_sum: float = 0.0
    best_epoch: int = 0
    best_loss: float = float("inf")
    figures: tuple[EpochFigures, ...] = ()

    @classmethod
    def of(cls, fields: object) -> "Progress":
        """Read what `asdict` and JSON have made of one.

        Raises:
            ValueError: It is something else.
        """
        return _PROGRESS.validate_python(fields)


_PROGRESS = TypeAdapter(Progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A training's progress and the state that belongs to it.

    Attributes:
        progress: How far it has come.
        state: The values of all variables that the next step depends on.
        best: The weights of the best epoch; none before the first.
    """

    progress: Progress
    state: Arrays
    best: Arrays


@dataclass(kw_only=True)
class Checkpoints:
    """The checkpoints of one training.

    Attributes:
        place: The folder of this training's own.
        request_id: Of the training.
        fits: A digest of what the state depends on beside the request: data, code, form.
    """

    place: Place
    request_id: str
    fits: str
    _kept: list[Place] = field(default_factory=list)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and remove all but the one before it.

        Raises:
            RetryableError: It cannot be written; the ones before are left.
        """
        stream = io.BytesIO()
        arrays = {f"state_{number:05}": value for number, value in enumerate(checkpoint.state)}
        arrays |= {f"best_{number:05}": value for number, value in enumerate(checkpoint.best)}
        np.savez(stream, allow_pickle=False, **arrays)
        content = stream.getvalue()
        header = {
            "format_version": FORMAT_VERSION,
            "request_id": self.request_id,
            "fits": self.fits,
            "progress": asdict(checkpoint.progress),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        progress = checkpoint.progress
        target = self.place.child(f"{progress.epoch:06}-{progress.step:012}{SUFFIX}")
        target.write(json.dumps(header).encode() + b"\n" + content)
        self._keep([*self._kept, target])

    def newest(self, shapes: Sequence[tuple[int, ...]]) -> Checkpoint | None:
        """Return the newest checkpoint that is whole, of this training and of these shapes of state.

        What is passed over is said on standard error.

        Raises:
            RetryableError: The place cannot be read just now, which does not mean that there is none.
        """
        for place in reversed(self._files()):
            try:
                checkpoint = self._read(place.read(), shapes)
            except (ValueError, KeyError, TypeError, BadZipFile, FileNotFoundError) as error:
                print(f"{place.url} is passed over: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the log
                continue
            self._kept = [place]
            return checkpoint
        return None

    def remove(self) -> None:
        """Remove all of them: the training is done."""
        self.place.remove()

    def _files(self) -> list[Place]:
        return [place for place in self.place.files() if place.name.endswith(SUFFIX)]

    def _keep(self, places: list[Place]) -> None:
        self._kept = places[-KEPT:]
        kept = {place.url for place in self._kept}
        for place in self._files():
            if place.url not in kept:
                place.remove()

    def _read(self, content: bytes, shapes: Sequence[tuple[int, ...]]) -> Checkpoint:
        line, _, rest = content.partition(b"\n")
        header: Mapping[str, object] = json.loads(line)
        for name, expected in (
            ("format_version", FORMAT_VERSION),
            ("request_id", self.request_id),
            ("fits", self.fits),
            ("sha256", hashlib.sha256(rest).hexdigest()),
        ):
            if header[name] != expected:
                raise ValueError(f"its {name} is {header[name]!r} and not {expected!r}")
        with np.load(io.BytesIO(rest), allow_pickle=False) as arrays:
            state, best = (
                [arrays[name] for name in sorted(arrays.files) if name.startswith(prefix)]
                for prefix in ("state_", "best_")
            )
        if [array.shape for array in state] != list(shapes):
            raise ValueError("its arrays have other shapes than the network's")
        return Checkpoint(progress=Progress.of(header["progress"]), state=state, best=best)
