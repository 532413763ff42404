"""Training on GPUs, with as many ranks as there are, two at most: `make test-gpu`."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from infra.pool import POOLS
from test_several_hosts import make_job
from training.host_agent import interface_towards
from training.launch_plan import Host
from training.launch_rendezvous import LOOPBACK, Rendezvous, assign

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def ranks() -> int:
    """As many as there are GPUs, two at most; without one, fail: a check that did not run is not passed."""
    if not Path("/dev/nvidiactl").exists():
        pytest.fail("there is no NVIDIA GPU here (no /dev/nvidiactl); run this where one is")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)  # noqa: S607
    return min(2, len(listed.stdout.splitlines()))


def test_each_rank_has_its_own_gpu_and_they_exchange_by_nccl(ranks: int) -> None:
    slots = assign([Host(name="localhost", slots=ranks)], ranks, ranks)
    with Rendezvous(LOOPBACK, slots) as port:
        processes = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("gpu_checks.py"))],
                env=os.environ
                | {
                    "HOROVOD_RANK": str(slot.rank),
                    "HOROVOD_SIZE": str(slot.size),
                    "HOROVOD_LOCAL_RANK": str(slot.local_rank),
                    "HOROVOD_LOCAL_SIZE": str(slot.local_size),
                    "HOROVOD_CROSS_RANK": str(slot.cross_rank),
                    "HOROVOD_CROSS_SIZE": str(slot.cross_size),
                    "HOROVOD_HOSTNAME": slot.hostname,
                    "HOROVOD_CONTROLLER": "gloo",
                    "HOROVOD_CPU_OPERATIONS": "gloo",
                    "HOROVOD_GLOO_RENDEZVOUS_ADDR": LOOPBACK,
                    "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
                    "HOROVOD_GLOO_IFACE": interface_towards(LOOPBACK),
                },
                stdout=subprocess.PIPE,
                text=True,
            )
            for slot in slots
        ]
        observed = [json.loads(process.communicate(timeout=200)[0].splitlines()[-1]) for process in processes]
    for seen in observed:
        assert seen["nccl"] > 0
        assert seen["gpus"] == 1
        assert "GPU:0" in seen["device"]
        assert seen["sum"] == sum(range(1, ranks + 1))
        assert seen["half"] == ranks
        assert seen["computed_in"] == "float16"
        assert seen["gradient"] == 2 * ranks


def test_a_gpu_comes_to_the_threshold_of_a_cpu(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thresholds = {}
    for name, count in (("gpu", ranks), ("cpu", 1)):
        (tmp_path / name).mkdir()
        if name == "cpu":
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        job = make_job(tmp_path / name, epochs=5, rows=20_000)
        job = replace(job, request=replace(job.request, world_size=count))
        result = POOLS["local"](job, tmp_path / name / "work", timeout=400)
        thresholds[name] = result.threshold.value
    assert thresholds["gpu"] == pytest.approx(thresholds["cpu"], rel=0.02)
