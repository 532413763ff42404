"""The command `floodmark score`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import Config, Home, Model, app, load_history, silence_usage_reports
from training.errors import ConfigurationError


@app.command()
def score(
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A .parquet, .csv or .csv.gz file")],
    out: Annotated[Path, typer.Option(help="A new .parquet or .csv file")],
    home: Home = None,
    model: Model = None,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Replace --out if it exists")] = False,
    false_discovery_rate: Annotated[
        float | None,
        typer.Option(help="Alert on what stands out in this file, at most this share of the alerts falsely"),
    ] = None,
) -> None:
    """Score a file's rows with the champion; changes nothing but --out. Parquet may be of any size."""
    if false_discovery_rate is not None and not 0 < false_discovery_rate < 1:
        raise ConfigurationError(
            f"--false-discovery-rate is {false_discovery_rate}", hint="it must lie between 0 and 1"
        )
    settings, past = load_history(config, home, model)
    silence_usage_reports()
    os.environ.setdefault("PREFECT_HOME", str(settings.home / "prefect"))  # imported, but no server is asked
    from flows.contract import champion_of  # noqa: PLC0415 - MLflow is heavy
    from flows.installation import Installation  # noqa: PLC0415 - likewise
    from flows.score import score_file  # noqa: PLC0415 - likewise

    champion = champion_of(Installation(settings), past)
    scored = score_file(
        champion, source, out, settings.csv, force=force, false_discovery_rate=false_discovery_rate
    )
    typer.echo(
        f"{out}: {scored.rows} rows scored by version {champion.version}, {scored.alerts} alerts"
        f" ({scored.alerts / scored.rows:.2%})"
    )
    if false_discovery_rate is not None and not scored.alerts:
        typer.echo(
            f"no row stands out enough for a false discovery rate of {false_discovery_rate:g} beside "
            f"{champion.calibration_scores.size} calibration rows; their threshold is infinite"
        )
