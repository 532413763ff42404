"""Whether a training's rows fit the memory of its ranks."""

import os
from pathlib import Path

import psutil

from training.types import FeatureSchema

SHARE = 0.5
"""Of the memory that is free, for rows: the rest is for TensorFlow, half a GiB a rank, and others."""
BYTES_PER_VALUE = {"numeric": 20, "categorical": 200}
"""Of a rank's rows at the peak: a column's values, what pandas makes of them, and their features twice, of
which a category has one for each level."""
BYTES_PER_GATHERED_ROW = 32
"""Of all ranks' rows: statistics are taken over one whole column at a time, which is sorted."""

_CGROUP = Path("/sys/fs/cgroup")


def needed_bytes(schema: FeatureSchema, rows: int, size: int) -> int:
    """Return about what each of `size` ranks needs to hold its part of `rows` rows."""
    row = sum(BYTES_PER_VALUE[column.kind] for column in schema.features)
    return -(-rows // size) * row + rows * BYTES_PER_GATHERED_ROW


def free_bytes_per_rank() -> int:
    """Return a rank's share of the memory that this machine, or this container, has free for rows."""
    free = min(psutil.virtual_memory().available, _free_in_cgroup())
    return int(SHARE * free) // int(os.environ.get("HOROVOD_LOCAL_SIZE", "1"))


def _free_in_cgroup() -> float:
    """Return what the limit of this process's cgroup (version 2) leaves, infinite without a limit."""
    try:
        line = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
        folder = _CGROUP / line.lstrip("/")
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cached = next(
            int(entry.split()[1])
            for entry in (folder / "memory.stat").read_text().splitlines()
            if entry.startswith("inactive_file ")
        )
    except (OSError, ValueError, StopIteration):  # no cgroup, or none of version 2
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - int(used) + cached
