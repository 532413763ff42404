"""The commands about alerts: `floodmark snooze` and `floodmark alerts test`."""

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from flows.alerting import site_of
from flows.cli import FAILED, Config, Home, Model, Reason, app, load_history, silence_usage_reports
from infra.channels import deliver
from infra.ledger import Ledger
from infra.prefect_server import prefect_environment
from infra.settings import load_settings
from infra.stores import open_store
from monitoring.alerts import Message
from monitoring.incidents import open_incidents
from monitoring.records import AlertRecord, SnoozeRecord
from monitoring.steering import duration_of
from training.errors import ConfigurationError

alerts = typer.Typer(no_args_is_help=True, help="Alerts and where they go.")
app.add_typer(alerts, name="alerts")


@app.command()
def snooze(
    reason: Reason,
    duration: Annotated[str, typer.Option("--for", help="How long: 2d, 12h, 30m")],
    incident: Annotated[
        str | None, typer.Argument(help="As `floodmark status` names it; all open ones by default")
    ] = None,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Send no messages about open incidents for a while; the end of an incident is told all the same."""
    until = datetime.now(UTC) + duration_of(duration)
    settings, past = load_history(config, home, model)
    current = [found.id for found in open_incidents(past, settings.alerts.channels)]
    if incident is not None and incident not in current:
        raise ConfigurationError(
            f"{incident} is no open incident of {settings.model}",
            hint=f"open are {', '.join(current) or 'none'}; nothing was snoozed",
        )
    chosen = current if incident is None else [incident]
    if not chosen:
        typer.echo("no incident is open; nothing was snoozed")
        return
    ledger = Ledger.of(open_store(settings.store_url, settings.s3), settings.model)
    ledger.append(past, SnoozeRecord(incidents=tuple(chosen), until=until, reason=reason))
    typer.echo(f"snoozed until {until:%Y-%m-%d %H:%M} UTC: {', '.join(chosen)}")


@alerts.command("test")
def send_test(home: Home = None, model: Model = None, config: Config = None) -> None:
    """Send a test message through every channel, and say what each answered."""
    settings = load_settings(config, {"home": home, "model": model})
    channels = settings.alerts.channels
    if not channels:
        raise ConfigurationError(
            "no channel for alerts is configured",
            hint="set webhook_url_variable or blocks under [alerts] in floodmark.toml",
        )
    site, now = site_of(settings), datetime.now(UTC)
    message = Message(
        id=f"{settings.model}/test/{now:%Y%m%dT%H%M%S.%fZ}",
        model=settings.model,
        incident="test",
        kind="test",
        stage="test",
        text="This is a test of the alert channels; nothing is wrong",
        since=now,
        resolved_at=None,
        windows=(),
        link=None,
        command=site.command("status"),
        channels=channels,
    )
    silence_usage_reports()
    with prefect_environment(settings.home) if settings.alerts.blocks else nullcontext(None) as wait_for_api:
        from flows.notify import senders  # noqa: PLC0415 - Prefect reads its environment when imported

        if wait_for_api is not None:
            wait_for_api()
        outcomes = deliver(senders(settings, channels), message)
    for outcome in outcomes:
        typer.echo(f"{outcome.channel}: {'ok' if outcome.delivered else 'failed'}, {outcome.answer}")
    ledger = Ledger.of(open_store(settings.store_url, settings.s3), settings.model)
    if settings.home.is_dir() and (past := ledger.load()).entries:
        ledger.append(past, AlertRecord(incident="test", stage="test", outcomes=outcomes))
    if not all(outcome.delivered for outcome in outcomes):
        raise typer.Exit(FAILED)
