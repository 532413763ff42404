"""The command `floodmark metrics`."""

from typing import Annotated

import typer

from flows.cli import Config, Home, Model, app, load_history
from flows.metrics import serve as serve_metrics
from infra.ledger import Ledger
from infra.settings import load_settings
from infra.stores import open_store
from monitoring.metrics import exposition, registry_of
from training.errors import ConfigurationError


@app.command()
def metrics(
    home: Home = None,
    model: Model = None,
    config: Config = None,
    serve: Annotated[bool, typer.Option("--serve", help="Answer Prometheus until interrupted")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on, with --serve")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on, with --serve")] = 9464,
) -> None:
    """Print the model's metrics in Prometheus' text format, or serve them at /metrics."""
    if not serve:
        settings, past = load_history(config, home, model)
        typer.echo(exposition(past, settings.model, settings.alerts.channels), nl=False)
        return
    settings = load_settings(config, {"home": home, "model": model})  # a ledger may come later
    ledger = Ledger.of(open_store(settings.store_url, settings.s3), settings.model)
    typer.echo(f"metrics of {settings.model}: http://{host}:{port}/metrics")
    try:
        serve_metrics(
            registry_of(ledger.load, settings.model, settings.alerts.channels), host=host, port=port
        )
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error}", hint="name a free --port, or another --host"
        ) from error
