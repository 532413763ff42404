"""What a person sees while the loop runs: one line a record, a spinner on a terminal only."""

import sys
import time
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.status import Status

from flows.alerting import site_of
from flows.loop import Standing
from flows.training_events import Event, line_of, listen
from infra.settings import Settings
from monitoring.next_step import Step
from monitoring.records import (
    AlertRecord,
    FailureRecord,
    PromotionRecord,
    Record,
    TrainingRecord,
    WindowRecord,
)
from monitoring.retraining import RetrainingDecision
from training.types import PromotionOutcome

SHOWN_COLUMNS = 3
EVERY_S = 30.0
"""Where there is no terminal, between two lines about one training."""


class Progress:
    """Reports steps and records, and counts what was refused."""

    def __init__(self, settings: Settings) -> None:
        self.console = Console(highlight=False, markup=False, soft_wrap=True)
        self.settings = settings
        self.windows = 0
        self.refusals = 0
        self.failed_trainings = 0
        self.spinner: Status | None = None
        self.told = time.monotonic()
        listen(self.training)

    def __call__(self, step: Step | None, record: Record | None) -> None:
        """Show a step that begins (`record` is None) or what came of it."""
        if self.spinner:
            self.spinner.stop()
            self.spinner = None
        if record is None:
            if self.console.is_terminal:
                self.spinner = self.console.status(f"{step} …")
                self.spinner.start()
            return
        self.windows += isinstance(record, WindowRecord)
        self.refusals += refused(record)
        self.failed_trainings += isinstance(record, TrainingRecord) and record.outcome == "failed"
        if line := describe(record):
            self.console.print(line)
        if paged := page_of(record):
            subject, name = paged
            page = site_of(self.settings).page(name)
            self.console.print(f"{subject}  page: {page if '://' in page else _shown(Path(page))}")

    def training(self, event: Event) -> None:
        """Show how a training comes on: beside the spinner, elsewhere a line from time to time."""
        line = line_of(event)
        if self.spinner:
            self.spinner.update(f"training: {line} …")
        elif event["event"] == "restarting" or time.monotonic() - self.told >= EVERY_S:
            self.told = time.monotonic()
            self.console.print(f"training: {line}")

    def close(self, standing: Standing) -> None:
        """Say where the loop stands and how to look at it."""
        if not self.windows:
            taken = len(standing.history.latest_windows)
            self.console.print(f"nothing to do: all {taken} windows were taken before")
        for window in standing.rewritten:
            self.console.print(f"{window}  was rewritten after it was taken, and is not taken twice")
        for window in standing.settling:
            self.console.print(f"{window}  is left for later: its parts may still be arriving")
        for key in standing.ignored:
            self.console.print(f"{key}  ignored: no .parquet, .csv or .csv.gz")
        champion = standing.history.champion
        self.console.print(f"champion: {f'version {champion}' if champion else 'none yet'}")
        for command in viewing_commands(self.settings):
            self.console.print(command)


def page_of(record: Record) -> tuple[str, str] | None:
    """Return what a record is about and the name of the page that people are to look at, if there is one."""
    match record:
        case WindowRecord(has_page=True):
            return record.window.id, record.window.id
        case PromotionRecord(page=str(page)) if record.outcome is not PromotionOutcome.PROMOTED:
            return f"version {record.version}", page
        case _:
            return None


def describe(record: Record) -> str:
    """One line about a record; empty for those that only keep the books."""
    match record:
        case WindowRecord():
            return f"{record.window.id}  {_window(record)}"
        case TrainingRecord():
            return f"training  {record.reason}: {_training(record)}"
        case PromotionRecord():
            return f"version {_promotion(record)} by {record.by}: {record.reason}"
        case FailureRecord():
            return f"failed  {record.step}: {record.error}"
        case AlertRecord():
            return alert_line(record)
        case _:
            return ""


def _window(record: WindowRecord) -> str:
    if record.outcome == "quarantined":
        return f"quarantined: {record.reason}"
    warned = "" if record.reason == "valid" else f"; warning: {record.reason}"
    if record.drift is None:
        return f"{record.outcome}, {record.rows} rows; {_decision(record.decision)}{warned}"
    columns = record.drift.drifted_columns
    more = ", …" if len(columns) > SHOWN_COLUMNS else ""
    moved = f" ({', '.join(columns[:SHOWN_COLUMNS])}{more})" if columns else ""
    others = record.drift.drifted_tests
    beside = f"; as a whole: {', '.join(others)}" if others else ""
    return (
        f"{record.drift.status.value}, {record.rows} rows, alert rate {record.alert_rate:.3f}"
        f" by version {record.champion_version}; {len(columns)} of {len(record.drift.columns)} columns"
        f" drifted{moved}{beside}; {_decision(record.decision)}{warned}"
    )


def _promotion(record: PromotionRecord) -> str:
    if record.outcome is PromotionOutcome.ROLLED_BACK:
        return f"{record.from_version}  rolled back to version {record.version}"
    return f"{record.version}  {record.outcome.value.replace('_', ' ')}"


def _training(record: TrainingRecord) -> str:
    if record.outcome == "failed":
        return f"failed: {record.error}"
    launched = f"{record.rows} rows, {record.world_size} ranks, {record.seconds:.1f} s"
    guarded = f"; guard: {record.guard}" if record.guard else ""
    return f"{launched}, registered as version {record.version}{guarded}"


def alert_line(record: AlertRecord) -> str:
    """Return one line about a message; it is a warning when a channel did not take it."""
    answers = ", ".join(
        f"{outcome.channel} {'answered' if outcome.delivered else 'failed:'} {outcome.answer}"
        for outcome in record.outcomes
    )
    warning = "" if all(outcome.delivered for outcome in record.outcomes) else "warning: "
    return f"{warning}alert {record.incident} {record.stage}: {answers}"


def refused(record: Record) -> bool:
    """Whether `--strict` makes an exit code of this record."""
    match record:
        case WindowRecord():
            return record.outcome == "quarantined"
        case PromotionRecord():
            return record.outcome is PromotionOutcome.REFUSED
        case TrainingRecord():
            return record.outcome == "failed"
        case _:
            return False


def viewing_commands(settings: Settings) -> list[str]:
    """Return the commands that show every run in the MLflow and Prefect pages."""
    home, programs = (quote(str(_shown(path))) for path in (settings.home, Path(sys.executable).parent))
    store = quote(f"sqlite:///{_shown(settings.home)}/mlflow.db")
    served = f"--backend-store-uri {store} --artifacts-destination {home}/artifacts"
    mlflow = f"{programs}/mlflow server --port 5000 {served}"
    return [
        f"MLflow runs and versions: {settings.tracking_uri or mlflow}",
        f"Prefect runs: PREFECT_HOME={home}/prefect {programs}/prefect server start --port 4200",
    ]


def _shown(path: Path) -> Path:
    """Shorten a path below the working folder, where these commands are meant to be run."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _decision(decision: RetrainingDecision | None) -> str:
    if decision is None:
        return "no decision"
    return f"{'retrain' if decision.retrain else 'no retraining'}: {decision.reason}"
