"""Trainings over several hosts, each with a network and an sshd of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from infra.pool import POOLS
from namespaces import NamespaceHost, PrivateNetwork, private_network, run
from processes import descendants, is_rank, rank_of, wait_until, wait_until_ended
from training import artifact
from training.errors import RetryableError
from training.types import Column, DetectorSpec, FeatureSchema, TrainingJob, TrainingRequest

ROOT = Path(__file__).resolve().parents[1]
ENDLESS = 10**6


@pytest.fixture
def network(tmp_path: Path) -> Iterator[PrivateNetwork]:
    with private_network(tmp_path / "network", hosts=2) as made:
        yield made


def make_job(folder: Path, *, epochs: int, rows: int = 300) -> TrainingJob:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.standard_normal((rows, 3)), columns=list("abc"))
    frame.to_parquet(folder / "training.parquet", index=False)
    frame.head(300).to_parquet(folder / "calibration.parquet", index=False)
    request = TrainingRequest(
        model="pump",
        windows=(),
        schema=FeatureSchema(features=tuple(Column(name=name, kind="numeric") for name in "abc")),
        detector=DetectorSpec(options={"epochs": epochs, "patience": ENDLESS}),
        target_alert_rate=0.05,
        threshold_method="quantile",
        world_size=2,
        seed=0,
        champion_version=None,
    )
    return TrainingJob(
        request=request,
        training_rows=str(folder / "training.parquet"),
        calibration_rows=str(folder / "calibration.parquet"),
        reference_rows=str(folder / "calibration.parquet"),
        held_out_rows=str(folder / "calibration.parquet"),
        output=str(folder / "output"),
    )


def ranks_of(host: NamespaceHost) -> list[int]:
    return [rank_of(process) for process in host.processes() if is_rank(process)]


def test_each_host_has_its_own_network_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    with private_network(tmp_path / "network", hosts=2) as network:
        assert [host.links() for host in network.hosts] == [
            ["127.0.0.1/8", f"{host.address}/24"] for host in network.hosts
        ]
        ssh = network.settings(2).ssh_command()
        for host in network.hosts:
            assert run(*ssh, host.address, "hostname --ip-address").split() == [host.address]
        names = [network.bridge, *(host.name for host in network.hosts)]
        assert all(name in run("ip", "link") + run("ip", "netns") for name in names)
    assert not any(name in run("ip", "link") + run("ip", "netns") for name in names)
    assert not any(host.daemon.returncode is None for host in network.hosts)


def test_ranks_on_two_hosts_meet_on_the_private_network_and_end_with_whoever_asked(
    network: PrivateNetwork, tmp_path: Path
) -> None:
    job = make_job(tmp_path, epochs=ENDLESS)
    settings = network.settings(2, hosts=tuple(f"{host.address}:1" for host in network.hosts))
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    (tmp_path / "settings.json").write_text(json.dumps(asdict(settings), default=str))
    program = """if True:
        import sys
        from pathlib import Path
        from pydantic import TypeAdapter
        from infra.launch_settings import LaunchSettings
        from infra.pool import POOLS
        from training.types import TrainingJob
        folder = Path(sys.argv[1])
        job, settings = (
            TypeAdapter(kind).validate_json((folder / name).read_bytes())
            for kind, name in ((TrainingJob, "job.json"), (LaunchSettings, "settings.json"))
        )
        POOLS["hosts"](job, folder / "work", timeout=1000, settings=settings)"""
    log = tmp_path / "work" / "logs" / "rank-0.log"
    control = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT)
    try:
        wait_until(lambda: log.exists() and '{"epoch": 2,' in log.read_text(), 120)
        assert [ranks_of(host) for host in network.hosts] == [[0], [1]]
        here = descendants(control.pid)
        listening = {
            item.laddr.ip
            for process in here
            for item in process.net_connections()
            if item.status == psutil.CONN_LISTEN
        }
        assert listening == {network.address}
        for host in network.hosts:  # ranks too listen on no other address
            table = run("ip", "netns", "exec", host.name, "cat", "/proc/net/tcp", "/proc/net/tcp6")
            lines = [line.split() for line in table.splitlines()]
            assert {line[1].split(":")[0] for line in lines if line[3] == "0A"} == {hexadecimal(host.address)}
    finally:
        os.kill(control.pid, signal.SIGKILL)
        control.wait()
    wait_until(lambda: not any(host.processes() for host in network.hosts))
    wait_until_ended(here)


def hexadecimal(address: str) -> str:
    """Write an IPv4 address as /proc/net/tcp does on a little-endian machine."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def test_a_training_goes_on_while_hosts_come_die_and_go(network: PrivateNetwork, tmp_path: Path) -> None:
    first, second = network.hosts
    listed, script = tmp_path / "hosts", tmp_path / "discover"
    script.write_text(f"#!/bin/sh\nexec cat {listed}\n")
    script.chmod(0o755)
    listed.write_text(f"{first.address}:1\n")
    steps: list[Callable[[], object]] = [
        lambda: listed.write_text(f"{first.address}:1\n{second.address}:1\n"),  # one is added
        second.kill,  # it dies
        lambda: None,
    ]
    events: list[dict[str, Any]] = []
    hosts_of_epochs: list[list[str]] = []

    def report(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "progress" and "loss" in event["figures"]:
            hosts = [item["hosts"] for item in events if item["event"] == "started"][-1]
            hosts_of_epochs.append(hosts)
            expected = [[first.address], [first.address, second.address], [first.address]][3 - len(steps) :]
            if steps and hosts == expected[0]:
                steps.pop(0)()

    job = make_job(tmp_path, epochs=30, rows=200_000)
    settings = network.settings(2, min_ranks=1, discovery_script=script)
    result = POOLS["elastic"](job, tmp_path / "work", timeout=400, settings=settings, report=report)
    assert not steps, events
    why = [event["why"] for event in events if event["event"] == "restarting"]
    assert why[0] == "there are slots for 2 ranks now"
    assert second.address in why[1]
    assert hosts_of_epochs[-1] == [first.address]
    assert result.epochs == len(artifact.read_epochs(Path(result.artifact))) == 30
    wait_until(lambda: not first.processes())


def test_a_host_whose_own_name_leads_elsewhere_is_refused_with_the_remedy(
    network: PrivateNetwork, tmp_path: Path
) -> None:
    second = network.hosts[1]
    (network.folder / "hosts-3").write_text(f"127.0.1.1 {second.name}\n")  # as Debian's installer writes it
    settings = network.settings(2, hosts=tuple(f"{host.address}:1" for host in network.hosts))
    with pytest.raises(RetryableError) as caught:
        POOLS["hosts"](make_job(tmp_path, epochs=3), tmp_path / "work", timeout=60, settings=settings)
    assert f"its own name {second.name} stands for 127.0.1.1" in str(caught.value)
    assert "/etc/hosts" in str(caught.value)
    wait_until(lambda: not any(host.processes() for host in network.hosts))
