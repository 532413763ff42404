"""The one file that knows Horovod: ranks, sums and gathers over them, and how they fail together.

Horovod 0.28.1 is older than Keras 3, so only its plain collectives are used, on plain tensors: its optimizer
wrapper runs under Keras 3 without ever synchronising, and its callbacks do not know Keras variables.
"""

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from horovod.common.exceptions import HorovodVersionMismatchError
from horovod.common.util import check_installed_version

from training import heartbeat
from training.errors import TrainingFailedError


def require_build_for(tensorflow: str) -> None:
    """Refuse a Horovod that was compiled for another TensorFlow than version `tensorflow`.

    Raises:
        TrainingFailedError: It was; Horovod itself would only warn, or fail on an undefined symbol.
    """
    try:
        # Given an exception, Horovod's check raises from it instead of warning.
        check_installed_version("tensorflow", tensorflow, exception=ImportError("another version"))
    except HorovodVersionMismatchError as error:
        raise TrainingFailedError(
            f"Horovod was compiled for another TensorFlow than the installed {tensorflow}: {error}",
            hint="Compile it against this one: remove it from the environment and install it again.",
        ) from error


require_build_for(tf.__version__)

import horovod.tensorflow as hvd  # noqa: E402 - loads the compiled library, so only after the check


def start() -> None:
    """Join the other ranks, of which the launcher has told in the environment.

    Raises:
        TrainingFailedError: MPI is asked for, and this Horovod was compiled without it.
    """
    if os.environ.get("HOROVOD_CONTROLLER") == "mpi" and not hvd.mpi_built():
        raise TrainingFailedError(
            "[training] controller is 'mpi', and this environment's Horovod was compiled without MPI",
            hint='Run `make mpi` and start floodmark from .venv-mpi/bin, or set controller = "gloo".',
        )
    with heartbeat.polling():
        hvd.init()


def rank() -> int:
    """Return the position of this process among the ranks, from 0."""
    return int(hvd.rank())


def size() -> int:
    """Return the number of ranks."""
    return int(hvd.size())


def sum_over_ranks(tensors: Sequence[tf.Tensor], kind: str = "float32") -> list[tf.Tensor]:
    """Add up each float32 tensor over the ranks; usable inside a tf.function.

    They travel as one buffer of type `kind`, `float32` or `float16`: many small ones would each be agreed on.
    With one rank it costs nothing. In a loop, iterations must not overlap: the exchange is named once.
    """
    if size() == 1:
        return list(tensors)
    flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
    compression = {"float32": hvd.Compression.none, "float16": hvd.Compression.fp16}[kind]
    parts = tf.split(
        hvd.allreduce(flat, op=hvd.Sum, compression=compression), [math.prod(t.shape) for t in tensors]
    )
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def gather(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Concatenate one array per rank along its first axis, in the order of the ranks; all ranks get it.

    Lengths may differ, types and other axes may not.
    """
    if size() == 1:
        return array
    return np.asarray(hvd.allgather(tf.constant(array)).numpy())


def said_by_rank_0(text: str) -> str:
    """Return the `text` that rank 0 called this with; the others' is of no account."""
    own = text.encode() if rank() == 0 else b""
    return gather(np.frombuffer(own, dtype=np.uint8)).tobytes().decode()


def total(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Add up one float64 array per rank in the order of the ranks: the sum is the same to the bit on all."""
    return np.asarray(gather(array[np.newaxis]).sum(axis=0))


def share_weights(weights: Sequence[Any]) -> None:
    """Give every rank the values that the Keras variables `weights` have on rank 0."""
    if size() > 1:
        # Horovod knows TensorFlow's variables; Keras 3 keeps one in `value`.
        hvd.broadcast_variables([weight.value for weight in weights], root_rank=0)


def assert_equal_weights(weights: Sequence[Any], when: str) -> None:
    """Compare a digest of the Keras variables `weights` over the ranks.

    Raises:
        TrainingFailedError: They differ, so the ranks were not synchronised; raised on every rank.
    """
    digest = hashlib.sha256(b"".join(np.asarray(weight.value).tobytes() for weight in weights)).digest()
    digests = gather(np.frombuffer(digest, dtype=np.uint8)[np.newaxis])
    differing = np.flatnonzero((digests != digests[0]).any(axis=1)).tolist()
    if differing:
        raise TrainingFailedError(
            f"{when}, the weights of ranks {differing} differ from those of rank 0",
            hint="The ranks were not synchronised; no model was written.",
        )


def fail_together(reason: str | None) -> None:
    """Stop all ranks if any of them has a reason to; every rank must call it at the same point.

    Raises:
        TrainingFailedError: Some rank gave a reason; the message names that rank, on every rank.
    """
    own = f"rank {rank()}: {reason}\n" if reason else ""
    reasons = gather(np.frombuffer(own.encode(), dtype=np.uint8)).tobytes().decode().splitlines()
    if reasons:
        raise TrainingFailedError("; ".join(reasons), hint="All ranks stopped; no model was written.")
