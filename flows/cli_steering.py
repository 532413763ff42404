"""The commands by which a person decides: promote, rollback, refuse, retrain, mute, unmute."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import Config, Home, Model, Reason, after, app, load_history, silence_usage_reports
from infra.ledger import Ledger
from infra.settings import Settings
from infra.stores import open_store
from monitoring.history import MOVES_CHAMPION, History
from monitoring.records import PromotionRecord, SettledRecord
from monitoring.steering import (
    mute_by_person,
    promotion_by_person,
    refusal_by_person,
    retraining_by_person,
    rollback_by_person,
    unmute_by_person,
)
from training.errors import ConfigurationError

if TYPE_CHECKING:
    from flows.installation import Installation


@app.command()
def promote(
    version: Annotated[str, typer.Argument(help="A version of this model")],
    reason: Reason,
    home: Home = None,
    model: Model = None,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Although its gates refused it")] = False,
) -> None:
    """Make a version the champion by hand."""
    settings, past = load_history(config, home, model)
    installation = open_registry(settings)
    move_champion(installation, past, promotion_by_person(past, version, reason=reason, force=force))


@app.command()
def rollback(
    reason: Reason,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Make the newest former champion the champion again."""
    settings, past = load_history(config, home, model)
    installation = open_registry(settings)
    record = rollback_by_person(past, reason=reason, exists=installation.registry.exists)
    move_champion(installation, past, record)


@app.command()
def refuse(
    version: Annotated[str, typer.Argument(help="The challenger that waits for a person")],
    reason: Reason,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Send the challenger away that its gates could not decide on; until then no training is decided."""
    settings, past = load_history(config, home, model)
    move_champion(open_registry(settings), past, refusal_by_person(past, version, reason=reason))


@app.command()
def retrain(
    reason: Reason,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Ask for a training on the newest windows, whatever cooldown, budget or mute say.

    Whoever runs the loop next carries it out, through the same gates.
    """
    settings, past = load_history(config, home, model)
    record = retraining_by_person(past, settings.retraining, reason=reason)
    Ledger.of(open_store(settings.store_url, settings.s3), settings.model).append(past, record)
    typer.echo(f"a training on {', '.join(record.windows)} is asked for: {reason}")
    deployed = f"`prefect deployment run floodmark-retrain/{settings.model}`"
    typer.echo(f"`floodmark run SOURCE` carries it out, or {deployed}, or the next run of its schedule")


@app.command()
def mute(
    reason: Reason,
    lasts: Annotated[str | None, typer.Option("--for", help="How long: 90m, 12h, 3d, 2w")] = None,
    until: Annotated[datetime | None, typer.Option(help="Until when (UTC)")] = None,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Forbid retraining for a while; windows are still taken, scored and judged for drift."""
    settings, past = load_history(config, home, model)
    record = mute_by_person(datetime.now(UTC), lasts=lasts, until=until, reason=reason)
    Ledger.of(open_store(settings.store_url, settings.s3), settings.model).append(past, record)
    typer.echo(f"no retraining until {record.until:%Y-%m-%dT%H:%M:%SZ}: {reason}")


@app.command()
def unmute(
    reason: Reason,
    home: Home = None,
    model: Model = None,
    config: Config = None,
) -> None:
    """Allow retraining again before the mute ends by itself."""
    settings, past = load_history(config, home, model)
    record = unmute_by_person(past, datetime.now(UTC), reason=reason)
    Ledger.of(open_store(settings.store_url, settings.s3), settings.model).append(past, record)
    typer.echo(f"retraining is allowed again: {reason}")


def open_registry(settings: Settings) -> "Installation":
    """Open the installation, of which only ledger and registry are used."""
    silence_usage_reports()
    from flows.installation import Installation  # noqa: PLC0415 - MLflow is heavy

    return Installation(settings)


def move_champion(installation: "Installation", past: History, record: PromotionRecord) -> None:
    """Write a person's decision into the ledger and let the aliases follow it.

    Raises:
        ConfigurationError: The version to be promoted is gone or cannot serve; nothing was changed.
    """
    from flows.settle import follow  # noqa: PLC0415 - MLflow is heavy

    moves = record.outcome in MOVES_CHAMPION
    if moves and (why := installation.foreign(record.version)):
        raise ConfigurationError(
            f"version {record.version} cannot serve: {why}",
            hint="nothing was changed; see `floodmark history` and the versions in the MLflow UI",
        )
    past = installation.ledger.append(past, record)
    follow(installation, record)
    installation.ledger.append(past, SettledRecord(version=record.version))
    if moves:
        typer.echo(f"version {record.version} is the champion{after(record)}: {record.reason}")
    else:
        typer.echo(f"version {record.version} is refused: {record.reason}")
