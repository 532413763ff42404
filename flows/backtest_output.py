"""What `floodmark backtest` shows: a table on a terminal, lines elsewhere, JSON, and a drawing."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from flows.backtest import Backtest
from monitoring.backtest_result import BacktestResult
from monitoring.records import WindowRecord
from training.errors import ConfigurationError
from training.types import Window

SCHEMA_VERSION = 1
SUFFIXES = (".png", ".svg")
COLOURS = {
    "bootstrap": "#bdbdbd",
    "STABLE": "#7fbf7b",
    "DRIFTED": "#d95f02",
    "INCONCLUSIVE": "#e6c619",
    "quarantined": "#404040",
}
MARKS = {"retraining": ("v", "black"), "held back": ("x", "#6a3d9a")}
SHOWN_NAMES = 12


def as_json(done: Backtest) -> dict[str, Any]:
    """Return the whole backtest as plain JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "changed_at": done.changed_at,
        "notes": list(done.notes),
        "policies": [
            {
                "policy": policy.name,
                "drift": asdict(policy.drift),
                "retraining": asdict(policy.retraining),
                "windows": len(result.timeline),
                "quarantined": result.quarantined,
                "drifted": result.drifted,
                "inconclusive": result.inconclusive,
                "false_alarms": result.false_alarms,
                "windows_to_verdict": result.windows_to_verdict,
                "windows_to_decision": result.windows_to_decision,
                "trainings": result.trainings,
                "training_rows": result.training_rows,
                "training_seconds": result.training_seconds,
                "held": result.held,
                "timeline": [_window(record) for record in result.timeline],
            }
            for policy, result in zip(done.policies, done.results, strict=True)
        ],
    }


def _window(record: WindowRecord) -> dict[str, Any]:
    decision = record.decision
    return {
        "id": record.window.id,
        "outcome": record.outcome,
        "drift": record.drift.status.value if record.drift else None,
        "decision": None
        if decision is None
        else {"retrain": decision.retrain, "reason": decision.reason, "held": list(decision.held)},
    }


def table(done: Backtest) -> Table:
    """One row a policy."""
    change = f"change at {done.changed_at}" if done.changed_at else "no change given"
    shown = Table(title=f"{len(done.results[0].timeline)} windows, {change}")
    for heading in ("policy", "k of n", "DRIFTED", "false alarms", "to verdict", "to decision", "trainings"):
        shown.add_column(heading)
    for heading in ("rows", "seconds", "held back"):
        shown.add_column(heading)
    for policy, result in zip(done.policies, done.results, strict=True):
        shown.add_row(
            policy.name,
            f"{policy.retraining.drifted} of {policy.retraining.of}",
            str(result.drifted),
            _figure(result.false_alarms),
            _figure(result.windows_to_verdict),
            _figure(result.windows_to_decision),
            str(result.trainings),
            str(result.training_rows),
            _figure(result.training_seconds),
            _held(result),
        )
    return shown


def show(done: Backtest) -> None:
    """Print the table or the lines, and what the figures leave out."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for part in [table(done)] if console.is_terminal else lines(done):
        console.print(part)
    for note in done.notes:
        console.print(f"note: {note}")


@contextmanager
def progress_bar() -> Iterator[Callable[[list[Window]], Iterable[Window]]]:
    """Yield what counts windows as they are taken, on a terminal only; standard output stays clean."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield lambda windows: progress.track(windows, description="windows")


def lines(done: Backtest) -> Iterator[str]:
    """Yield a line a policy, and an indented one for each of its decisions."""
    for policy, result in zip(done.policies, done.results, strict=True):
        asked = f"{policy.retraining.drifted} of {policy.retraining.of}"
        cost = f"{result.trainings} trainings of {result.training_rows} rows"
        if result.training_seconds is not None:
            cost += f", about {result.training_seconds:.0f} s"
        yield (
            f"{policy.name} ({asked}): {len(result.timeline)} windows, {result.quarantined} quarantined, "
            f"{result.drifted} DRIFTED{_delays(result)}; {cost}; held back: {_held(result)}"
        )
        for record in result.timeline:
            if record.decision and record.decision.trigger:
                done_or_not = "retrain" if record.decision.retrain else "no retraining"
                yield f"  {record.window.id}  {done_or_not}: {record.decision.reason}"


def _delays(result: BacktestResult) -> str:
    if result.false_alarms is None:
        return ""
    return (
        f", {result.false_alarms} of them false alarms; windows from the change to verdict "
        f"{_figure(result.windows_to_verdict)}, to decision {_figure(result.windows_to_decision)}"
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _held(result: BacktestResult) -> str:
    return ", ".join(f"{rule} {count}" for rule, count in result.held.items()) or "never"


def drawing_suffix(file: Path) -> str:
    """Return the format that a drawing's name asks for.

    Raises:
        ConfigurationError: It is none that is drawn, or its folder does not exist.
    """
    if file.suffix.lower() not in SUFFIXES or not file.parent.is_dir():
        raise ConfigurationError(
            f"{file} cannot be drawn",
            hint=f"name a file in an existing folder, ending in {' or '.join(SUFFIXES)}",
        )
    return file.suffix.lower().removeprefix(".")


def draw(done: Backtest, file: Path) -> None:
    """Draw a row a policy: windows coloured by verdict, marks where a training was decided or held back."""
    suffix = drawing_suffix(file)
    windows = [record.window.id for record in done.results[0].timeline]
    figure = Figure(
        figsize=(min(24, 4 + 0.25 * len(windows)), 2 + 0.6 * len(done.results)), layout="constrained"
    )
    axes = figure.subplots()
    for row, result in enumerate(done.results):
        colours = [COLOURS[_verdict(record)] for record in result.timeline]
        axes.bar(range(len(windows)), 0.7, bottom=row - 0.35, width=0.9, color=colours)
        for name, (marker, colour) in MARKS.items():
            places = [place for place, record in enumerate(result.timeline) if _mark(record) == name]
            axes.plot(places, [row] * len(places), marker, color=colour, markersize=7)
    if done.changed_at is not None:
        axes.axvline(windows.index(done.changed_at) - 0.5, color="black", linestyle="--")
    step = -(-len(windows) // SHOWN_NAMES)
    axes.set_xticks(range(0, len(windows), step), windows[::step], rotation=30, ha="right")
    axes.set_yticks(range(len(done.results)), [result.policy for result in done.results])
    axes.invert_yaxis()
    axes.set_title("dashed: the change" if done.changed_at else "windows by drift verdict")
    named = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    marks = [
        Line2D([], [], marker=marker, color=colour, linestyle="", label=name)
        for name, (marker, colour) in MARKS.items()
    ]
    figure.legend(handles=[*named, *marks], loc="outside lower center", ncols=4)
    hidden = file.with_name(f".{file.name}")
    figure.savefig(hidden, format=suffix, dpi=150)
    hidden.replace(file)


def _verdict(record: WindowRecord) -> str:
    return record.drift.status.value if record.drift else record.outcome


def _mark(record: WindowRecord) -> str:
    if record.decision is None or record.decision.trigger is None:
        return ""
    return "retraining" if record.decision.retrain else "held back"
