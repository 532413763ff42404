"""The command line. Heavy rooms are imported by the command that needs them, after the environment is set."""

import json
import os
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows import interrupt
from flows.alerting import incident_values
from flows.overview import overview
from infra.ledger import Ledger
from infra.local_store import LocalStore
from infra.prefect_server import prefect_environment
from infra.settings import Settings, load_settings
from infra.source import Source
from infra.stores import open_store
from monitoring.history import History
from monitoring.records import PromotionRecord
from monitoring.status import status as describe_status
from training.errors import ConfigurationError, FloodmarkError
from training.types import PromotionOutcome

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)

Home = Annotated[
    Path | None, typer.Option(help="Folder of everything that is written; .floodmark by default")
]
Model = Annotated[str | None, typer.Option(help="Name of the registered model")]
TimeColumn = Annotated[str | None, typer.Option(help="Column with the rows' times; never a feature")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with 0/1 labels, for judging only")]
Config = Annotated[Path | None, typer.Option(help="Configuration; floodmark.toml by default")]


def told(reason: str) -> str:
    """Refuse a reason that gives none."""
    if not reason.strip():
        raise typer.BadParameter("it is blank; say why, for those who read the ledger; nothing was changed")
    return reason.strip()


Reason = Annotated[str, typer.Option(callback=told, help="Why; it goes into the ledger")]

DONE, FAILED, WRONG_USE, REFUSED = 0, 1, 2, 3

COMMANDS = ("alerts", "deploy", "doctor", "metrics", "reconcile", "score", "serve", "steering", "up")
"""The modules `cli_…` beside this one, in the order of --help."""


@app.callback()
def floodmark() -> None:
    """Keep an anomaly-detection model fresh: drift, retraining, gates, promotion.

    With --debug anywhere, an error shows its traceback.
    """


@app.command()
def run(
    source: Annotated[str, typer.Argument(help="A folder or s3://bucket/prefix")],
    home: Home = None,
    model: Model = None,
    time_column: TimeColumn = None,
    label_column: LabelColumn = None,
    config: Config = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on when no window is left")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 after a quarantine or a refusal")
    ] = False,
) -> None:
    """Take every new window of SOURCE through the whole loop."""
    settings = load_settings(
        config,
        {"home": home, "model": model, "time_column": time_column, "label_column": label_column},
    )
    settings.require_columns()
    silence_usage_reports()
    refuse_wrong_source(settings, source)
    with prefect_environment(settings.home) as wait_for_api:
        from flows.console import Progress  # noqa: PLC0415 - after the environment is set
        from flows.events import flush  # noqa: PLC0415 - likewise
        from flows.loop import run_loop  # noqa: PLC0415 - Prefect reads its environment when imported

        wait_for_api()
        interrupt.listen()
        progress = Progress(settings)
        try:
            progress.close(run_loop(settings, source, follow=follow, report=progress))
        finally:
            if not flush():
                typer.echo("warning: Prefect has not stored every event of this run", err=True)
    if progress.failed_trainings:
        raise typer.Exit(FAILED)
    if strict and progress.refusals:
        raise typer.Exit(REFUSED)


def refuse_wrong_source(settings: Settings, source: str) -> None:
    """Let wrong use fail at once, before anything is started or written.

    Raises:
        ConfigurationError: The source has no windows, or what Floodmark writes would become windows.
    """
    store = open_store(source, settings.s3)
    folder = store.folder.absolute() if isinstance(store, LocalStore) else None
    for written in (settings.home, Path(settings.store_url)):
        if folder is None or not written.is_relative_to(folder):
            continue
        if not any(part.startswith((".", "_")) for part in written.relative_to(folder).parts):
            raise ConfigurationError(
                f"{written} lies within the source {source}, so scores would be taken for windows",
                hint="name a --home outside of it, or one whose name begins with a dot",
            )
    Source(store=store, csv=settings.csv).windows()


@app.command()
def check(
    source: Annotated[
        str, typer.Argument(help="A file, or a folder or s3://bucket/prefix whose newest window is taken")
    ],
    window: Annotated[str | None, typer.Option(help="The window's id; the newest by default")] = None,
    home: Home = None,
    model: Model = None,
    time_column: TimeColumn = None,
    label_column: LabelColumn = None,
    config: Config = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 unless the window is valid and STABLE")
    ] = False,
) -> None:
    """Hold one window against the champion: data contract and drift. Changes nothing."""
    columns = {"time_column": time_column, "label_column": label_column}
    settings, past = load_history(config, home, model, columns)
    settings.require_columns()
    silence_usage_reports()
    os.environ.setdefault("PREFECT_HOME", str(settings.home / "prefect"))  # imported, but no server is asked
    from flows.check import check_window, described_check  # noqa: PLC0415 - MLflow and Prefect are heavy
    from flows.installation import Installation  # noqa: PLC0415 - likewise

    checked = check_window(Installation(settings), past, source, window)
    for line in described_check(checked):
        typer.echo(line)
    if strict and not checked.passed:
        raise typer.Exit(REFUSED)


@app.command()
def contract(
    home: Home = None,
    model: Model = None,
    config: Config = None,
    out: Annotated[Path | None, typer.Option(help="A new file; standard output by default")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that --out names")] = False,
) -> None:
    """Write the data contract that the champion has learned, as YAML to be edited."""
    if out is not None and out.exists() and not force:  # an edited contract is a person's work
        raise ConfigurationError(
            f"{out} exists and is kept", hint="name a new file with --out, or add --force"
        )
    settings, past = load_history(config, home, model)
    silence_usage_reports()
    from flows.contract import learned_contract  # noqa: PLC0415 - MLflow is heavy
    from flows.installation import Installation  # noqa: PLC0415 - likewise

    text = learned_contract(Installation(settings), past)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(
            f"{out} was not written: {error.strerror}",
            hint="name a new file in an existing folder with --out",
        ) from error
    typer.echo(f"{out} is written; it counts once the configuration's [quality] contract names it")


@app.command()
def status(
    home: Home = None,
    model: Model = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, schema_version 1")] = False,
) -> None:
    """Show where the model stands."""
    settings, history = load_history(config, home, model)
    if as_json:
        shown = describe_status(history, settings.model) | {"incidents": incident_values(history, settings)}
        typer.echo(json.dumps(shown, indent=2, allow_nan=False))
        return
    for part in overview(history, settings):
        Console(highlight=False).print(part, markup=False, soft_wrap=isinstance(part, str))


def after(record: PromotionRecord) -> str:
    """Name the champion before."""
    if record.outcome is PromotionOutcome.ROLLED_BACK:
        return f", to which {record.from_version} was rolled back"
    return ", the first" if record.from_version is None else f" after {record.from_version}"


@app.command()
def history(
    home: Home = None,
    model: Model = None,
    config: Config = None,
    at: Annotated[datetime | None, typer.Option(help="Who was champion at this time (UTC)")] = None,
) -> None:
    """Show who was champion when, and why."""
    _, past = load_history(config, home, model)
    moves = past.champion_moves(until=at.replace(tzinfo=UTC) if at else None)
    for entry, record in moves[-1:] if at else moves:
        since = entry.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        typer.echo(f"{since}  version {record.version}{after(record)}, by {record.by}: {record.reason}")
    if not moves:
        typer.echo("there was no champion" + (f" at {at.isoformat()}" if at else " yet"))


@app.command()
def backtest(
    source: Annotated[str, typer.Argument(help="A folder or s3://bucket/prefix with past windows")],
    policy: Annotated[
        list[Path] | None, typer.Option(help="TOML with [drift] or [retraining]; may be given again")
    ] = None,
    changed_at: Annotated[
        str | None, typer.Option(help="Window or time of a known change: DRIFTED before it is a false alarm")
    ] = None,
    time_column: Annotated[str | None, typer.Option(help="Column with the rows' times")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column with labels; never a feature")] = None,
    home: Home = None,
    model: Model = None,
    config: Config = None,
    drawing: Annotated[Path | None, typer.Option(help="Draw the timeline into this .png or .svg")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, schema_version 1")] = False,
) -> None:
    """Tell what policies would have done with past windows; trains nothing and changes nothing."""
    silence_usage_reports()
    from flows import backtest_output as output  # noqa: PLC0415 - Matplotlib is heavy
    from flows.backtest import backtest as replay  # noqa: PLC0415 - Evidently is heavy
    from flows.backtest import read_policies  # noqa: PLC0415 - likewise

    if drawing is not None:
        output.drawing_suffix(drawing)
    overrides = {"home": home, "model": model, "time_column": time_column, "label_column": label_column}
    settings, policies = read_policies(policy or [], config, dict(overrides))
    opened = Source(store=open_store(source, settings.s3), csv=settings.csv)
    with output.progress_bar() as progress:
        done = replay(settings, policies, opened, changed_at=changed_at, progress=progress)
    if drawing is not None:
        output.draw(done, drawing)
    if as_json:
        typer.echo(json.dumps(output.as_json(done), indent=2, allow_nan=False))
        return
    output.show(done)


def load_history(
    config: Path | None, home: Path | None, model: str | None, options: dict[str, str | None] | None = None
) -> tuple[Settings, History]:
    """Read a ledger that must exist."""
    settings = load_settings(config, {"home": home, "model": model, **(options or {})})
    past = Ledger.of(open_store(settings.store_url, settings.s3), settings.model).load()
    if not past.entries:
        raise ConfigurationError(
            f"no ledger of a model named {settings.model} in {settings.store_url}",
            hint="name the --home and --model of an earlier `floodmark run`",
        )
    return settings, past


def silence_usage_reports() -> None:
    """Switch off what the libraries send home."""
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    os.environ["DO_NOT_TRACK"] = "true"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


def main() -> None:
    """Run the command line; expected errors go to standard error without a traceback."""
    for name in COMMANDS:  # each registers its commands, and imports this module
        import_module(f"flows.cli_{name}")
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except FloodmarkError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"error: {error}")
        sys.exit(WRONG_USE if isinstance(error, ConfigurationError) else FAILED)
