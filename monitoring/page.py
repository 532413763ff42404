"""The page of one window that something happened in: what happened, what follows, and what to run next.

One HTML file that needs nothing else: no script, font or picture from anywhere, which its own content
security policy holds it to. Names and categories are text of others, and are escaped.
"""

from dataclasses import dataclass
from datetime import datetime

from monitoring.alerts import Site
from monitoring.history import History
from monitoring.pictures import ColumnPicture, MissingRate, ScorePicture, furthest_columns
from monitoring.records import WindowRecord
from monitoring.rendering import clipped, counted, percent, template
from monitoring.verdicts import DriftStatus, DriftVerdict

STRIP = 20
"""Windows that are shown with the one the page is about."""

TESTS = {
    "joint": "columns together",
    "scores": "anomaly scores",
    "alerts": "number of alerts",
    "stream": "scores over the last windows",
}
"""The tests of a window as a whole, in plain words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StripWindow:
    """One of the last windows: `outcome` in a word, and its alert rate where it was scored."""

    window: str
    outcome: str
    alert_rate: float | None
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPage:
    """Everything that a window's page shows.

    Attributes:
        outcome: The verdict in a word.
        verdict: The verdict in a sentence, with its numbers.
        follows: What was decided, in a sentence.
        reasons: Broken rules of the data contract, or the reason of the verdict and the warnings.
        version: The champion; None before there is one.
        at: The median of the rows' times, where they have any.
        target_rate: The alert rate that the flood mark was set for.
        drift: All columns and tests; None for a window that was set aside.
        evidently: Relative address of Evidently's page, where there is one.
        notes: What could not be drawn or stored, and why.
        command: What to run next.
    """

    model: str
    window: str
    outcome: str
    verdict: str
    follows: str
    reasons: tuple[str, ...]
    rows: int
    version: str | None
    at: datetime | None
    written: datetime
    strip: tuple[StripWindow, ...]
    command: str
    target_rate: float | None = None
    drift: DriftVerdict | None = None
    columns: tuple[ColumnPicture, ...] = ()
    missing: tuple[MissingRate, ...] = ()
    scores: ScorePicture | None = None
    evidently: str | None = None
    notes: tuple[str, ...] = ()

    def to_html(self) -> str:
        """Return the page."""
        return template("page.html.jinja").render(page=self, test_names=TESTS).lstrip()


def window_page(
    record: WindowRecord, history: History, site: Site, *, target_rate: float | None, now: datetime
) -> WindowPage:
    """Put a window into words, without any picture. `history` ends before the window's own record."""
    return WindowPage(
        model=site.model,
        window=record.window.id,
        outcome=outcome_word(record),
        verdict=verdict_sentence(record, target_rate),
        follows=follows_sentence(record, history.champion),
        reasons=_reasons(record),
        rows=record.rows,
        version=record.champion_version or history.champion,
        at=record.event_time,
        written=now,
        strip=_strip(record, history),
        command=_next_command(record, history, site),
        target_rate=target_rate,
        drift=record.drift,
    )


def outcome_word(record: WindowRecord) -> str:
    """Return what became of a window, in a word."""
    if record.drift is not None:
        return record.drift.status.value.lower()
    return "first windows" if record.outcome == "bootstrap" else record.outcome


def verdict_sentence(record: WindowRecord, target_rate: float | None = None) -> str:
    """Say in a plain sentence what became of a window, with the numbers that a reader needs first."""
    name, drift = clipped(record.window.id, 80), record.drift
    if drift is None:
        first, *others = _reasons(record) or ("no reason is known",)
        found = clipped(first[0].lower() + first[1:], 300)
        more = f", and {counted(len(others), 'more finding', 'more findings')}" if others else ""
        return f"Window {name} was set aside, neither scored nor judged: {found}{more}."
    alerts = _alerts(record, target_rate)
    match drift.status:
        case DriftStatus.DRIFTED:
            return f"Window {name} drifted: {_moved(drift)}{alerts}."
        case DriftStatus.INCONCLUSIVE:
            why = clipped(drift.reason.split(";")[0], 300)
            return f"Whether window {name} drifted cannot be told: {why}{alerts}."
        case DriftStatus.STABLE:
            return f"Window {name} is stable on the whole, but {_moved(drift)}{alerts}."


def follows_sentence(record: WindowRecord, champion: str | None) -> str:
    """Say what was decided after a window."""
    if record.decision is None:
        keeps = f"Version {champion} keeps serving" if champion else "There is no champion yet"
        return (
            f"{keeps}, and the next window is taken; this one starts no retraining. "
            "Repair the object in place, or mend the option that it was read by, and run again: "
            "it is then taken anew."
        )
    if record.decision.retrain:
        return f"A retraining was decided: {record.decision.reason}."
    return f"No retraining: {record.decision.reason}."


def _moved(drift: DriftVerdict) -> str:
    """Say which columns and tests drifted."""
    columns = [column for column in furthest_columns(drift) if column.drifted]
    parts = []
    if columns:
        first, count = columns[0], len(drift.drifted_columns)
        most = "most of all " if count > 1 else ""
        parts.append(
            f"{count} of {counted(len(drift.columns), 'column', 'columns')} moved, "
            f"{most}{clipped(first.column, 60)!r} "
            f"(distance {first.score:.2g}, threshold {first.threshold:.2g})"
        )
    tests = [TESTS.get(test.test, test.test) for test in drift.tests if test.status is DriftStatus.DRIFTED]
    if tests:
        parts.append(f"the {'test' if len(tests) == 1 else 'tests'} of {' and '.join(tests)} found a change")
    return ", and ".join(parts) or drift.reason


def _alerts(record: WindowRecord, target_rate: float | None) -> str:
    if record.alert_rate is None:
        return ""
    target = f" (target {percent(target_rate)})" if target_rate is not None else ""
    return f"; {percent(record.alert_rate)} of its {counted(record.rows, 'row', 'rows')} are alerts{target}"


def _reasons(record: WindowRecord) -> tuple[str, ...]:
    """Return the reasons of a record one by one: as they are joined by the data contract and the verdict."""
    told = [record.drift.reason] if record.drift else []
    told += [] if record.reason == "valid" else [record.reason]
    lines = [part.strip() for text in told for line in text.splitlines() for part in line.split("; ")]
    return tuple(line[0].upper() + line[1:] for line in lines if line)


def _strip(record: WindowRecord, history: History) -> tuple[StripWindow, ...]:
    taken = {**history.latest_windows}
    taken.pop(record.window.id, None)
    shown = [*taken.values(), record][-STRIP:]
    return tuple(
        StripWindow(
            window=item.window.id,
            outcome=outcome_word(item),
            alert_rate=item.alert_rate,
            current=item is record,
        )
        for item in shown
    )


def _next_command(record: WindowRecord, history: History, site: Site) -> str:
    if record.outcome == "quarantined":
        return site.command("run", site.source or "SOURCE", *site.reading)
    if history.challenger:
        return site.command("promote", history.challenger, "--reason", "TEXT")
    return site.command("status")
