"""The one file that knows Horovod: ranks, sums and gathers over them, and how they fail together.

Horovod 0.28.1 is older than Keras 3, so only its plain collectives are used, on plain tensors: its optimizer
wrapper runs under Keras 3 without ever synchronising, and its callbacks do not know Keras variables.
"""

import hashlib
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


def sum_over_ranks(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Add up each tensor over the ranks in one fused exchange; usable inside a tf.function.

    With one rank it costs nothing. In a loop, iterations must not overlap: the exchange is named once.
    """
    if size() == 1:
        return list(tensors)
    return list(hvd.grouped_allreduce(list(tensors), op=hvd.Sum))


def average_weights(weights: Sequence[Any], rows: tf.Tensor) -> None:
    """Set the Keras variables `weights` to their mean over the ranks, each weighing the `rows` it has seen.

    McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data".
    """
    if size() == 1:
        return
    weight_of_rank = tf.maximum(rows, 1e-6)  # where no rank has seen a row, the mean is still one
    *sums, total_weight = sum_over_ranks(
        [*(weight.value * weight_of_rank for weight in weights), weight_of_rank]
    )
    for weight, summed in zip(weights, sums, strict=True):
        weight.assign(summed / total_weight)


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
