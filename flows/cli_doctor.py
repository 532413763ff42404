"""The command `floodmark doctor`."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli import FAILED, REFUSED, Config, Home, Model, app, silence_usage_reports
from infra.prefect_server import API_URL
from infra.settings import load_settings
from monitoring.diagnosis import Finding, Severity, worst

SCHEMA_VERSION = 1


@app.command("doctor")
def examine(
    home: Home = None,
    model: Model = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, schema_version 1")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 after a warning")] = False,
) -> None:
    """Find what is wrong with this installation, and say what to do. Changes nothing.

    Exits with 1 after a fault.
    """
    settings = load_settings(config, {"home": home, "model": model})
    silence_usage_reports()
    from flows import doctor  # noqa: PLC0415 - MLflow is heavy

    checks = doctor.CHECKS
    if API_URL in os.environ or settings.deployment.source is not None:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        from flows import doctor_prefect  # noqa: PLC0415 - Prefect makes its home when imported

        checks |= doctor_prefect.CHECKS
    findings = list(doctor.examine(settings, checks))
    if as_json:
        shown = [asdict(finding) | {"severity": finding.severity.value} for finding in findings]
        values = {"schema_version": SCHEMA_VERSION, "model": settings.model, "findings": shown}
        typer.echo(json.dumps(values | {"severity": worst(findings).value}, indent=2))
    else:
        for line in lines_of(findings):
            typer.echo(line)
    if worst(findings) is Severity.FAULT:
        raise typer.Exit(FAILED)
    if strict and worst(findings) is Severity.WARNING:
        raise typer.Exit(REFUSED)


def lines_of(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a line for each finding, the gravest first, and one for what is to be done about it."""
    gravest_first = list(Severity)[::-1]
    for finding in sorted(findings, key=lambda item: gravest_first.index(item.severity)):
        yield f"{finding.severity.value:<7}  {finding.check}: {finding.message}"
        if finding.severity is not Severity.SOUND and finding.remedy:
            yield f"{'':<7}  next: {finding.remedy}"
