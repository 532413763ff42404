"""The command `floodmark serve`."""

import os
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from flows.cli import Config, Home, Model, app, silence_usage_reports
from infra.asgi import bind, run
from infra.settings import load_settings
from training.errors import ConfigurationError

REGISTRY_CLIENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
}
"""The follower asks again by itself, and says at once when there is no answer; a database that was moved away
or exchanged must not go on answering through a connection that is still open."""
SWITCH_SECONDS = 0.0005
"""How long a thread that loads a model or scores a batch may keep a single row waiting."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one")] = 8000,
    home: Home = None,
    model: Model = None,
    config: Config = None,
    poll_seconds: Annotated[
        float, typer.Option(min=0.05, max=3600, help="Pause between two looks at the alias")
    ] = 0.5,
) -> None:
    """Answer HTTP requests with the champion's scores, and follow the alias, until interrupted."""
    settings = load_settings(config, {"home": home, "model": model})
    if settings.tracking_uri is None and not settings.home.is_dir():
        raise ConfigurationError(
            f"the home {settings.home} does not exist", hint="name that of `floodmark run` with --home"
        )
    silence_usage_reports()
    for variable, value in REGISTRY_CLIENT.items():
        os.environ.setdefault(variable, value)
    with bind(host, port) as listening:
        from infra.http_scorer import build_app  # noqa: PLC0415 - MLflow is heavy
        from infra.registry import Registry  # noqa: PLC0415 - likewise
        from infra.served_champion import ChampionFollower  # noqa: PLC0415 - likewise

        follower = ChampionFollower(
            lambda: Registry.open(settings.home, settings.model, settings.tracking_uri),
            poll_seconds=poll_seconds,
            report=tell,
        )
        follower.look()
        bound_host, bound_port = listening.getsockname()[:2]
        tell(f"scores of {settings.model}: http://{bound_host}:{bound_port}/score, described at /docs")
        sys.setswitchinterval(SWITCH_SECONDS)
        run(build_app(follower, settings.model), listening)
    tell("stopped")


def tell(line: str) -> None:
    """Print a line with its time."""
    typer.echo(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}  {line}")
