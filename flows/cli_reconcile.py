"""The commands that follow the alias in MLflow: `reconcile` once, `listen` at each delivery of a webhook."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import Config, Home, Model, app, load_history, silence_usage_reports
from infra.asgi import bind, run
from infra.mlflow_webhook import Verifier
from infra.prefect_server import prefect_environment
from infra.settings import Settings, load_settings
from training.errors import ConfigurationError

if TYPE_CHECKING:
    from flows.installation import Installation
    from monitoring.records import Record


@app.command()
def reconcile(home: Home = None, model: Model = None, config: Config = None) -> None:
    """Let the ledger follow what a person did to the alias champion in MLflow, and a watch that is over."""
    settings, _ = load_history(config, home, model)
    with opened(settings) as installation:
        from flows.reconcile import reconcile_now  # noqa: PLC0415 - Prefect and MLflow are heavy

        history = reconcile_now(installation, show)
    typer.echo(f"champion: {f'version {history.champion}' if history.champion else 'none yet'}")


@app.command()
def listen(
    host: Annotated[str, typer.Option(help="Address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at", min=0, max=65535)] = 8010,
    secret_variable: Annotated[
        str, typer.Option(help="Variable with the secret that MLflow signs with")
    ] = "MLFLOW_WEBHOOK_SECRET",  # noqa: S107 - the name of a variable
    announce: Annotated[
        str | None, typer.Option(help="URL of this receiver, as MLflow reaches it: create the webhook there")
    ] = None,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Take MLflow's webhooks at /mlflow, and reconcile within seconds of a moved alias, until Ctrl-C."""
    settings = load_settings(config, {"home": home, "model": model})  # a ledger may come later
    secret = os.environ.get(secret_variable, "")
    if not secret:
        raise ConfigurationError(
            f"the variable {secret_variable} is empty or not set",
            hint="set it to the secret of MLflow's webhook; nothing unsigned is ever taken",
        )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    with bind(host, port) as listening, opened(settings) as installation:
        from flows.listen import receiver  # noqa: PLC0415 - heavy, as the next one
        from flows.reconcile import reconcile_now  # noqa: PLC0415

        if announce is not None:
            installation.registry.announce(announce, secret)
            typer.echo(f"MLflow's webhook floodmark-{settings.model} points to {announce}")
        receive = receiver(settings.model, Verifier(secret), lambda: reconcile_now(installation, show))
        typer.echo(f"listening at http://{host}:{listening.getsockname()[1]}/mlflow")
        run(receive, listening)


@contextmanager
def opened(settings: Settings) -> "Iterator[Installation]":
    """Open the installation, with Prefect's API where alerts go through its blocks."""
    silence_usage_reports()
    if not settings.alerts.blocks:
        os.environ.setdefault(
            "PREFECT_HOME", str(settings.home / "prefect")
        )  # imported, but asked for nothing
        from flows.installation import Installation  # noqa: PLC0415 - MLflow is heavy

        yield Installation(settings)
        return
    with prefect_environment(settings.home) as wait_for_api:
        from flows.installation import Installation  # noqa: PLC0415 - Prefect reads its environment when imported

        wait_for_api()
        yield Installation(settings)


def show(record: "Record") -> None:
    """Print a record's line."""
    from flows.console import describe  # noqa: PLC0415 - it imports Prefect

    typer.echo(describe(record))
