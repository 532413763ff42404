"""The command `floodmark deploy`."""

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli import Config, Model, app, silence_usage_reports
from infra.prefect_server import API_URL, wait_for_api
from infra.settings import DEFAULT_FILE, load_settings
from training.errors import ConfigurationError

SCHEMA_VERSION = 1


@app.command()
def deploy(
    model: Model = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, schema_version 1")] = False,
) -> None:
    """Create or update this model's deployments, schedules, work pools and automation in Prefect."""
    settings = load_settings(config, {"model": model})
    settings.require_columns()
    if API_URL not in os.environ:
        raise ConfigurationError(
            f"{API_URL} is not set, so no Prefect server is known",
            hint=f"`floodmark up` starts one; then {API_URL}=http://127.0.0.1:4200/api; nothing was changed",
        )
    wait_for_api(None, seconds=10)
    silence_usage_reports()
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - reads its environment when imported

    from flows.deploy import deploy as deploy_all  # noqa: PLC0415 - likewise

    file = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    with get_client(sync_client=True) as client:
        changes = list(deploy_all(client, settings, file.absolute() if file else None))
    if as_json:
        shown = {"schema_version": SCHEMA_VERSION, "changes": [asdict(change) for change in changes]}
        typer.echo(json.dumps(shown, indent=2))
        return
    for change in changes:
        detail = f"  {change.detail}" if change.detail else ""
        typer.echo(f"{change.outcome:<9}  {change.kind:<10}  {change.name}{detail}")
