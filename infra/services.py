"""What `floodmark up` keeps: the command and environment of each service, and how to tell that it works."""

import os
import secrets
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from urllib.parse import quote

from infra.prefect_server import API_URL, server_command
from infra.settings import PREFIX, Settings
from training.errors import ConfigurationError

BACKEND = "MLFLOW_BACKEND_STORE_URI"
ARTIFACTS = "MLFLOW_ARTIFACTS_DESTINATION"
PREFECT_DATABASE = "PREFECT_API_DATABASE_CONNECTION_URL"
"""MLflow's and Prefect's own variables: a database's URL may hold a password, so it is no setting of ours."""
WEBHOOK_SECRET = "MLFLOW_WEBHOOK_SECRET"  # noqa: S105 - a variable's name, as the next one
WEBHOOK_KEY = "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY"
TRACKING_URI = f"{PREFIX}TRACKING_URI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process that is kept.

    Attributes:
        name: Also that of its log.
        command: No secret is in it: those are in the environment that all share.
        health: A URL that answers with 2xx while it works. Of a worker: that of its pool's workers.
        port: None where it listens nowhere.
        setting: The key of `[services]` that moves the port.
        worker: The worker's name in Prefect, whose heartbeat is looked at.
        url: What a person opens.
    """

    name: str
    command: tuple[str, ...]
    health: str
    port: int | None = None
    setting: str | None = None
    worker: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All services: servers, which the deployments need, and then those that need the servers."""

    servers: tuple[Service, ...]
    others: tuple[Service, ...]
    environment: Mapping[str, str]

    @property
    def services(self) -> tuple[Service, ...]:
        """All, in the order of their start."""
        return self.servers + self.others


def plan_services(settings: Settings, config: Path | None, pools: Mapping[str, str]) -> Plan:
    """Return what is to be kept here: a server that the configuration finds elsewhere is not among it.

    Args:
        settings: The configuration.
        config: Its file, for services of ours.
        pools: Work pools by the names of their workers' services.
    """
    services = settings.services
    environment = environment_of(settings)
    prefect = services.url(services.prefect_port)
    mlflow = services.url(services.mlflow_port)
    servers = []
    if environment[API_URL] == f"{prefect}/api":
        servers.append(
            _server(
                "prefect",
                server_command(services.host, services.prefect_port),
                f"{prefect}/api/health",
                services.prefect_port,
                prefect,
            )
        )
    if environment[TRACKING_URI] == mlflow:
        servers.append(_server("mlflow", _mlflow(settings), f"{mlflow}/health", services.mlflow_port, mlflow))
    return Plan(
        servers=tuple(servers),
        others=(
            *(_worker(name, pool, environment[API_URL]) for name, pool in pools.items()),
            *_own(settings, config),
        ),
        environment=environment,
    )


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment that all services share: this process's, completed.

    Each server has SQLite under home, where artifacts lie too, unless MLflow's and Prefect's own
    variables say otherwise. What signs and encrypts webhooks is made where it is not given.
    """
    services, home = settings.services, settings.home
    tracking_uri = settings.tracking_uri or f"sqlite:///{quote(str(home / 'mlflow.db'))}"
    elsewhere = tracking_uri.startswith(("http://", "https://"))
    defaults = {
        API_URL: f"{services.url(services.prefect_port)}/api",
        "PREFECT_HOME": str(home / "prefect"),
        ARTIFACTS: str(home / "artifacts"),
        WEBHOOK_SECRET: secrets.token_hex(),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight processes that nobody asks anything
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",  # the receiver is on this machine
    }
    environment = {**defaults, **os.environ}
    environment[f"{PREFIX}HOME"] = str(home)
    environment[f"{PREFIX}MODEL"] = settings.model
    environment[TRACKING_URI] = tracking_uri.rstrip("/") if elsewhere else services.url(services.mlflow_port)
    if environment[TRACKING_URI] == services.url(services.mlflow_port):
        environment.setdefault(
            BACKEND, f"sqlite:///{quote(str(home / 'mlflow.db'))}" if elsewhere else tracking_uri
        )
        environment.setdefault(WEBHOOK_KEY, kept_key(home / "state" / "webhooks.key"))
    return environment


def kept_key(path: Path) -> str:
    """Return the key by which MLflow encrypts webhooks' secrets in its database; it is made at first.

    Raises:
        ConfigurationError: It can be neither read nor written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = urlsafe_b64encode(os.urandom(32)).decode()
        with suppress(FileExistsError), open(path, "x", opener=_private) as file:
            file.write(fresh)
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"the key of webhooks {path} cannot be read: {error}",
            hint=f"mend it, or set {WEBHOOK_KEY}; nothing was started",
        ) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _server(name: str, command: tuple[str, ...], health: str, port: int, url: str) -> Service:
    return Service(name=name, command=command, health=health, port=port, setting=f"{name}_port", url=url)


def _mlflow(settings: Settings) -> tuple[str, ...]:
    address = ("--host", settings.services.host, "--port", str(settings.services.mlflow_port))
    return (sys.executable, "-P", "-m", "mlflow", "server", "--serve-artifacts", "--workers", "1", *address)


def _worker(name: str, pool: str, api: str) -> Service:
    named = f"floodmark-{gethostname()}-{name}"
    options = ("--pool", pool, "--type", "process", "--name", named)
    return Service(
        name=name,
        command=(sys.executable, "-P", "-m", "prefect", "--no-prompt", "worker", "start", *options),
        health=f"{api}/work_pools/{quote(pool)}/workers/filter",
        worker=named,
    )


def _own(settings: Settings, config: Path | None) -> tuple[Service, ...]:
    services = settings.services
    announced = f"{services.url(services.receiver_port)}/mlflow"
    found = [
        _floodmark("scorer", ("serve",), "/health/live", settings, config),
        _floodmark("receiver", ("listen", "--announce", announced), "/health", settings, config),
    ]
    if services.metrics_port is not None:
        # This path is answered without reading the ledger.
        found.append(_floodmark("metrics", ("metrics", "--serve"), "/favicon.ico", settings, config))
    return tuple(found)


def _floodmark(
    name: str, words: tuple[str, ...], health: str, settings: Settings, config: Path | None
) -> Service:
    setting = f"{name}_port"
    port = getattr(settings.services, setting)
    url = settings.services.url(port)
    file = ("--config", str(config)) if config else ()
    program = str(Path(sys.executable).parent / "floodmark")
    return Service(
        name=name,
        command=(program, *words, "--host", settings.services.host, "--port", str(port), *file),
        health=url + health,
        port=port,
        setting=setting,
        url=url,
    )
