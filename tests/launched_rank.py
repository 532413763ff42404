"""A small training of its own for the tests of the launcher: real ranks, a weight, a checkpoint an epoch.

Not a test itself: `python launched_rank.py FOLDER MODE` is what the supervisor starts. It ends when the file
`finish` is in the folder, and writes down the weight that it came to.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from training import heartbeat


def main(folder: Path, mode: str) -> None:
    """Count epochs together, from the last checkpoint on, until told to finish."""
    heartbeat.start()
    from training import distributed  # noqa: PLC0415 - whoever watches must see the import

    distributed.start()
    rank, size = distributed.rank(), distributed.size()
    checkpoint = folder / "checkpoint.json"
    kept = json.loads(checkpoint.read_text()) if rank == 0 and checkpoint.exists() else {}
    epoch, weight = distributed.total(np.array([kept.get("epoch", 0), kept.get("weight", 0.0)]))
    print(f"starts as {rank} of {size} after epoch {epoch:.0f}", flush=True)  # noqa: T201 - its log
    while True:
        with heartbeat.steps(partial(int, epoch)):
            if mode == "out-of-step" and epoch == 2 and rank == 1:
                while True:
                    time.sleep(1)  # where the others exchange
            weight += float(distributed.total(np.array(1.0 / size)))
        epoch += 1
        if rank == 0:
            (folder / "partial").write_text(json.dumps({"epoch": epoch, "weight": weight}))
            (folder / "partial").replace(checkpoint)
            print(json.dumps({"epoch": int(epoch), "checkpoint": True}), flush=True)  # noqa: T201 - its log
        if distributed.total(np.array(float(rank == 0 and (folder / "finish").exists()))):
            break
        time.sleep(0.2)
    (folder / f"weight-{rank}.json").write_text(json.dumps([size, epoch, weight]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
