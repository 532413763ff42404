"""How services are kept: real processes, small ones; the installation's own are kept in test_postgresql."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from command import environment, floodmark
from infra.service_settings import ServiceSettings
from infra.services import ARTIFACTS, BACKEND, WEBHOOK_KEY, WEBHOOK_SECRET, environment_of, plan_services
from infra.settings import load_settings
from processes import processes_of, wait_until_nothing_is_left_of
from training.errors import ConfigurationError

KEPT = Path(__file__).with_name("kept_services.py")
PATIENCE = 120
WITH_CHILD = """
import subprocess, sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[2]])
print("listens at", sys.argv[1], flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def web(name: str, port: int, home: Path) -> dict[str, Any]:
    """A service with a child of its own."""
    program = home.with_name(f"{name}.py")
    program.write_text(WITH_CHILD)
    return {
        "name": name,
        "command": [sys.executable, str(program), str(port), str(home)],
        "health": f"http://127.0.0.1:{port}/",
        "port": port,
        "setting": f"{name}_port",
    }


@dataclass
class Keeping:
    """A running keeper and what it has told."""

    process: "subprocess.Popen[str]"
    told: list[tuple[str, str, str]] = field(default_factory=list)

    def until(self, service: str, state: str) -> str:
        """Read on until a service is in a state, and return the words with it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(tuple(json.loads(line)))
            if self.told[-1][:2] == (service, state):
                return self.told[-1][2]
        pytest.fail(f"it ended before {service} was {state}: {self.told}")

    def stop(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def keeping(home: Path, *services: dict[str, Any]) -> Iterator[Keeping]:
    process = subprocess.Popen(
        [sys.executable, KEPT, home, json.dumps(services)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home.parent,
    )
    with process:
        try:
            yield Keeping(process)
        finally:
            process.kill()


def pid_of(home: Path, words: str) -> int:
    """The newest process that names the home and these words."""
    found = [
        item.pid
        for item in psutil.process_iter(["cmdline", "pid"])
        if any(str(home) in word for word in item.info["cmdline"] or [])
        and any(words in word for word in item.info["cmdline"] or [])
        and "infra.contained" not in item.info["cmdline"]
        and str(KEPT) not in item.info["cmdline"]
    ]
    return max(found)


def test_services_come_up_come_back_and_leave_nothing(tmp_path: Path) -> None:
    home, port, other = tmp_path / "home 100%", free_port(), free_port()
    with keeping(home, web("one", port, home), web("two", other, home)) as kept:
        kept.until("all", "ready")
        assert "listens at" in (home / "logs" / "one.log").read_text()

        second = subprocess.run(
            [sys.executable, KEPT, home, "[]"], env=environment(), capture_output=True, text=True, check=False
        )
        assert "has the home" in second.stderr
        assert f"as process {kept.process.pid}" in second.stderr

        os.kill(pid_of(home, f"{port}"), signal.SIGKILL)  # its child is left, and goes before it comes back
        kept.until("one", "restarted")
        kept.until("one", "ready")
        children = [item for item in processes_of(home) if "time.sleep" in " ".join(item.cmdline())]
        assert len(children) == 2

        (tmp_path / "one.py").unlink()
        os.kill(pid_of(home, f"{port}"), signal.SIGKILL)
        words = kept.until("one", "failed")
        assert "can't open file" in words
        assert "one.log" in words
        assert httpx.get(f"http://127.0.0.1:{other}/").status_code == 200
        assert kept.stop(signal.SIGTERM) == 0
        kept.until("all", "stopped")
    wait_until_nothing_is_left_of(home)


@pytest.mark.parametrize("victim", ["keeper", "supervisor"])
def test_nothing_outlives_a_kill(tmp_path: Path, victim: str) -> None:
    home = tmp_path / "home"
    with keeping(home, web("one", free_port(), home)) as kept:
        kept.until("all", "ready")
        (bound,) = psutil.Process(kept.process.pid).children()
        (supervisor,) = bound.children()
        assert "supervisor.supervisord" in supervisor.cmdline()
        assert processes_of(home) != []
        os.kill({"keeper": kept.process.pid, "supervisor": supervisor.pid}[victim], signal.SIGKILL)
        assert kept.process.wait(PATIENCE) != 0
        wait_until_nothing_is_left_of(home, PATIENCE)


def test_what_fails_again_and_again_is_named_with_its_last_words_and_ends_the_start(tmp_path: Path) -> None:
    home, port = tmp_path / "home", free_port()
    said = "echo 'cannot open postgresql://me:a-secret@database/mlflow' >&2; exit 3"
    bad = {"name": "bad", "command": ["sh", "-c", said], "health": "http://127.0.0.1:9/"}
    with keeping(home, web("one", port, home), bad) as kept:
        assert kept.process.wait(PATIENCE) != 0
        assert kept.process.stderr is not None
        words = kept.process.stderr.read()
    assert "the service bad failed again and again" in words
    assert "cannot open postgresql://***@database/mlflow" in words
    assert str(home / "logs" / "bad.log") in words
    assert "a-secret" not in words
    wait_until_nothing_is_left_of(home)


def test_a_port_in_use_is_named_with_its_holder_and_nothing_is_started(tmp_path: Path) -> None:
    (tmp_path / "floodmark.toml").write_text("[services]\nprefect_port = 14199\n")
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        done = floodmark("up", cwd=tmp_path, env={"FLOODMARK_SERVICES__MLFLOW_PORT": str(port)})
    assert done.returncode == 2
    assert f"mlflow cannot listen: 127.0.0.1:{port} is in use by" in done.stderr
    assert f"(process {os.getpid()})" in done.stderr
    assert "mlflow_port" in done.stderr
    assert "nothing was started" in done.stderr
    assert done.stdout == ""
    wait_until_nothing_is_left_of(tmp_path / ".floodmark")


def test_secrets_are_in_the_environment_and_the_key_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://me:secret@db/prefect")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    settings = load_settings(None, {"home": tmp_path})
    plan = plan_services(settings, None, {"control-worker": "floodmark-control"})
    assert [item.name for item in plan.services] == [
        "prefect",
        "mlflow",
        "control-worker",
        "scorer",
        "receiver",
    ]
    assert plan.environment[BACKEND] == f"sqlite:///{tmp_path}/mlflow.db"
    assert plan.environment[ARTIFACTS] == f"{tmp_path}/artifacts"
    for name in (WEBHOOK_KEY, WEBHOOK_SECRET, "PREFECT_API_DATABASE_CONNECTION_URL"):
        assert not any(plan.environment[name] in word for item in plan.services for word in item.command)
    key = tmp_path / "state" / "webhooks.key"
    assert key.stat().st_mode & 0o777 == 0o600
    again = environment_of(settings)
    assert again[WEBHOOK_KEY] == plan.environment[WEBHOOK_KEY] == key.read_text()
    assert again[WEBHOOK_SECRET] != plan.environment[WEBHOOK_SECRET]


def test_servers_elsewhere_are_used_and_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    monkeypatch.setenv("FLOODMARK_TRACKING_URI", "http://mlflow.example:5000/")
    plan = plan_services(load_settings(None, {"home": tmp_path}), None, {"training-worker": "gpu"})
    assert plan.servers == ()
    assert plan.others[0].health == "http://prefect.example:4200/api/work_pools/gpu/workers/filter"
    assert plan.environment["FLOODMARK_TRACKING_URI"] == "http://mlflow.example:5000"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mlflow_port": 70_000}, "between 1 and 65535"),
        ({"mlflow_port": 4200}, "prefect_port and mlflow_port are both 4200"),
        ({"host": ""}, "host is empty"),
    ],
)
def test_addresses_that_cannot_be_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ServiceSettings(**given)
    with pytest.raises(ConfigurationError, match=told):
        load_settings(None, {"services": given})
