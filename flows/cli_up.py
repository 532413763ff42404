"""The command `floodmark up`."""

import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from flows import interrupt
from flows.cli import Config, Home, Model, app, silence_usage_reports
from flows.up import keep_up
from infra.services import plan_services
from infra.settings import DEFAULT_FILE, load_settings

FLOODMARK = str(Path(sys.executable).parent / "floodmark")


@app.command()
def up(
    home: Home = None,
    model: Model = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Each change as a line of JSON")] = False,
) -> None:
    """Keep an installation's services on this machine (servers, workers, receiver, scorer) until Ctrl-C."""
    settings = load_settings(config, {"home": home, "model": model})
    silence_usage_reports()
    file = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    wanted = settings.deployment
    pools = {"control-worker": wanted.control_pool, "training-worker": wanted.training_pool}
    plan = plan_services(settings, file.absolute() if file else None, pools)
    deploy = (FLOODMARK, "deploy", *(("--config", str(file.absolute())) if file else ()))
    interrupt.listen(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def tell(service: str, state: str, words: str) -> None:
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if as_json:
            typer.echo(json.dumps({"at": at, "service": service, "state": state, "detail": words}))
        else:
            typer.echo(f"{at}  {service:<15}  {state}{f'  {words}' if words else ''}")

    try:
        keep_up(
            plan, settings.home, settings.services.host, deploy if wanted.source is not None else None, tell
        )
    except KeyboardInterrupt:
        tell("all", "stopped", "")
