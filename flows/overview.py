"""`floodmark status` for a person: a table of what happened, and where the model stands."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.table import Table

from flows.alerting import incident_lines
from infra.settings import Settings
from monitoring.history import SET_ASIDE, History
from monitoring.records import PromotionRecord, TrainingRecord, WindowRecord
from training.types import PromotionOutcome


def overview(history: History, settings: Settings) -> Iterator[Table | str]:
    """Yield a table with one row for each window, training and promotion, then lines of text."""
    table = Table("what", "rows", "outcome", "alert rate", "by version", title=f"model {settings.model}")
    for entry in history.entries:
        match entry.record:
            case WindowRecord() as record:
                outcome = record.drift.status.value if record.drift else record.outcome
                outcome += f": {record.reason}" if record.outcome in SET_ASIDE else ""
                rate = "" if record.alert_rate is None else f"{record.alert_rate:.3f}"
                table.add_row(record.window.id, str(record.rows), outcome, rate, record.champion_version)
            case TrainingRecord() as record:
                made = f"version {record.version}" if record.version else f"failed: {record.error}"
                table.add_row(f"  training, {record.world_size} ranks", str(record.rows), made)
            case PromotionRecord() as record:
                gates = sum(gate.verdict.value == "pass" for gate in record.gates)
                judged = f", {gates} of {len(record.gates)} gates" if record.gates else ""
                told = record.outcome.value.replace("_", " ")
                if record.outcome is PromotionOutcome.ROLLED_BACK:
                    told = f"{record.from_version} was rolled back to it"
                table.add_row(f"  version {record.version} by {record.by}", "", told + judged)
            case _:
                pass
    yield table
    yield _standing(history)
    if (mute := history.mute(datetime.now(UTC))) and mute.until:
        yield f"no retraining until {mute.until.isoformat(timespec='minutes')}: {mute.reason}"
    yield from incident_lines(history, settings)


def _standing(history: History) -> str:
    if history.champion is None:
        return "no champion yet"
    training = history.registration_of(history.champion)
    line = f"champion: version {history.champion}"
    if training and isinstance(training.record, TrainingRecord) and (mark := training.record.threshold):
        line += f", flood mark {mark.value:.4g} for an alert rate of {mark.target_alert_rate:.4g}"
        line += f" ({mark.note})" if mark.note else ""
    previous = f"{history.previous} (banned)" if history.previous in history.banned else history.previous
    return f"{line}; previous: {previous or 'none'}; challenger: {history.challenger or 'none'}"
