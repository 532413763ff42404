"""The default detector's network trained by torch, run in an environment that has torch and PyOD.

`pyod` fits PyOD's autoencoder, which adds no noise; the time of two fits of different length tells what an
epoch takes without what comes before and after. `parallel` trains in two processes with torch's
DistributedDataParallel over gloo, and takes batches as slices of a shuffled tensor, which is much quicker
than its own loader. Prints the rows a second, and the training loss of the last epoch.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import distributed, multiprocessing, nn

PROCESSES = 2


def pyod(path: str, batch: int, epochs: int) -> None:
    """Fit PyOD's autoencoder."""
    from pyod.models.auto_encoder import AutoEncoder  # noqa: PLC0415 - in this environment alone

    rows = np.load(path)[: int(0.9 * len(np.load(path, mmap_mode="r")))]
    seconds = []
    for length in (1, 1, epochs):  # the very first also loads what the others find loaded
        model = AutoEncoder(
            preprocessing=False,
            lr=2e-3,
            epoch_num=length,
            batch_size=batch,
            optimizer_name="adam",
            hidden_neuron_list=[128, 64],
            batch_norm=False,
            dropout_rate=0.0,
            verbose=0,
        )
        begun = time.monotonic()
        model.fit(rows)
        seconds.append(time.monotonic() - begun)
    say(len(rows) * (epochs - 1) / (seconds[2] - seconds[1]), float("nan"))


def parallel(path: str, batch: int, epochs: int) -> None:
    """Train in two processes."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "GLOO_SOCKET_IFNAME": "lo"}
    multiprocessing.spawn(train, (path, batch, epochs), nprocs=PROCESSES)


def train(rank: int, path: str, batch: int, epochs: int) -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    rows = torch.from_numpy(np.load(path))
    rows = rows[: int(0.9 * len(rows))]
    width, own = rows.shape[1], batch // PROCESSES
    layers = [nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, min(64, width))]
    layers += [nn.Linear(min(64, width), 128), nn.ReLU(), nn.Linear(128, width)]
    network = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer: Any = torch.optim.Adam(network.parameters(), lr=2e-3, eps=1e-7)
    steps = len(rows) // batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    seconds, loss_sum = [], 0.0
    for epoch in range(epochs):
        begun, loss_sum = time.monotonic(), 0.0
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))[rank::PROCESSES]
        for step in range(steps):
            clean = rows[order[step * own : (step + 1) * own]]
            loss = nn.functional.mse_loss(network(clean + 0.6 * torch.randn_like(clean)), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            loss_sum += float(loss.detach())
        seconds.append(time.monotonic() - begun)
    if rank == 0:
        say(steps * batch / float(np.median(seconds[1:])), loss_sum / steps)
    distributed.destroy_process_group()


def say(rate: float, loss: float) -> None:
    """Tell the benchmark."""
    sys.stdout.write(json.dumps({"rows_per_second": rate, "loss": loss}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    {"pyod": pyod, "parallel": parallel}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
