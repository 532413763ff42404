"""What a model's ledger says: pure views over its entries, oldest first."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from monitoring.records import (
    AlertRecord,
    ClaimRecord,
    Entry,
    FailureRecord,
    Lane,
    MuteRecord,
    PromotionRecord,
    Record,
    ReleaseRecord,
    RetrainRecord,
    SettledRecord,
    SnoozeRecord,
    TrainingRecord,
    WindowRecord,
)
from monitoring.retraining import WindowOutlook
from monitoring.verdicts import ScoreSummary
from training.types import FeatureSchema, PromotionOutcome

MOVES_CHAMPION = (PromotionOutcome.PROMOTED, PromotionOutcome.ROLLED_BACK)
SET_ASIDE = ("quarantined", "skipped")
STREAM_WINDOWS = 100
"""Windows in which a slow change of the scores is looked for."""

BOOKKEEPING = (ClaimRecord, ReleaseRecord, MuteRecord, AlertRecord, SnoozeRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The entries of one ledger, read-only; nothing here looks outside."""

    entries: tuple[Entry, ...] = ()

    @property
    def next_sequence(self) -> int:
        """The place that the next entry will take."""
        return len(self.entries) + 1

    def open_claim(self, lane: Lane) -> Entry | None:
        """The newest claim on a lane, unless its owner has reported an end; what others wrote is no end."""
        ended: set[str] = set()
        for entry in reversed(self.entries):
            if isinstance(claim := entry.record, ClaimRecord):
                if claim.lane in (lane, None):
                    return None if entry.owner in ended else entry
            else:
                ended.add(entry.owner)
        return None

    def failed_last(self, step: str) -> bool:
        """Whether the newest thing that happened is a failure of `step`."""
        happened = [entry.record for entry in self.entries if not isinstance(entry.record, BOOKKEEPING)]
        return bool(happened) and isinstance(happened[-1], FailureRecord) and happened[-1].step == step

    def unexpected_failures(self, step: str) -> int:
        """How often `step` failed in a way that nobody foresaw."""
        failures = [entry.record for entry in self.entries if isinstance(entry.record, FailureRecord)]
        return sum(failure.step == step and failure.unexpected for failure in failures)

    @property
    def windows(self) -> list[WindowRecord]:
        """Every window taken; a repaired one stands again where it was taken again."""
        return [entry.record for entry in self.entries if isinstance(entry.record, WindowRecord)]

    @property
    def latest_windows(self) -> dict[str, WindowRecord]:
        """The newest record of each window id."""
        return {record.window.id: record for record in self.windows}

    @property
    def trainings(self) -> list[TrainingRecord]:
        """Every training that ended."""
        return [entry.record for entry in self.entries if isinstance(entry.record, TrainingRecord)]

    @property
    def promotions(self) -> list[PromotionRecord]:
        """Every verdict on a candidate and every move of the champion."""
        return [entry.record for entry in self.entries if isinstance(entry.record, PromotionRecord)]

    @property
    def verdicts(self) -> list[PromotionRecord]:
        """Every promotion record that says something of its version; a move that was undone says nothing."""
        return [record for record in self.promotions if record.outcome is not PromotionOutcome.PUT_BACK]

    @property
    def banned(self) -> set[str]:
        """Versions that the watch rolled back, unless a person has promoted them again since."""
        found: set[str] = set()
        for _, move in self.champion_moves():
            found.discard(move.version)
            if move.by == "watch" and move.from_version is not None:
                found.add(move.from_version)
        return found

    @property
    def former_champions(self) -> list[str]:
        """What can be rolled back to, the newest first: champions before this one that are not banned."""
        served = [move.version for _, move in reversed(self.champion_moves())]
        return [name for name in dict.fromkeys(served) if name != self.champion and name not in self.banned]

    @property
    def champion(self) -> str | None:
        """The version that serves by this ledger."""
        moves = self.champion_moves()
        return moves[-1][1].version if moves else None

    @property
    def previous(self) -> str | None:
        """The version that served before the champion."""
        moves = self.champion_moves()
        return moves[-1][1].from_version if moves else None

    @property
    def challenger(self) -> str | None:
        """The candidate that waits for a person: the newest training, neither refused nor promoted."""
        versions = [training.version for training in self.trainings if training.version]
        if not versions:
            return None
        verdicts = [record.outcome for record in self.verdicts if record.version == versions[-1]]
        waiting = not verdicts or verdicts[-1] is PromotionOutcome.UNDECIDED
        return versions[-1] if waiting else None

    @property
    def bootstrap_schema(self) -> FeatureSchema | None:
        """The schema of the first window, which holds until a champion brings its own."""
        schemas = [record.schema for record in self.windows if record.schema is not None]
        return schemas[0] if schemas else None

    def registration_of(self, version: str) -> Entry | None:
        """Return the entry of the training that registered `version`, if this ledger knows it."""
        made = [
            entry
            for entry in self.entries
            if isinstance(entry.record, TrainingRecord) and entry.record.version == version
        ]
        return made[-1] if made else None

    def trigger_of(self, training: TrainingRecord) -> str | None:
        """Return what asked for a training: first, drift, age or person; None where no entry says."""
        trigger = None
        for entry in self.entries:
            if entry.record == training:
                return trigger
            if isinstance(entry.record, RetrainRecord):
                trigger = "person"
            if isinstance(entry.record, WindowRecord) and (decision := entry.record.decision):
                trigger = decision.trigger if decision.retrain else trigger
        return None

    def champion_moves(self, until: datetime | None = None) -> list[tuple[Entry, PromotionRecord]]:
        """Every change of the champion up to a time, with the entry that says when."""
        return [
            (entry, entry.record)
            for entry in self.entries
            if isinstance(entry.record, PromotionRecord)
            and entry.record.outcome in MOVES_CHAMPION
            and (until is None or entry.at <= until)
        ]

    def same_content(self, digest: str, window_id: str) -> str | None:
        """Return another window that was taken with the same rows, if there is one."""
        taken = (record for record in self.windows if record.outcome not in SET_ASIDE)
        return next(
            (
                record.window.id
                for record in taken
                if record.digest == digest and record.window.id != window_id
            ),
            None,
        )

    def windows_since_training(self) -> list[WindowRecord]:
        """The windows taken since the champion moved, or since the last training that ended was asked for."""
        found: list[WindowRecord] = []
        meanwhile: list[WindowRecord] | None = None  # taken while it was under way
        for entry in reversed(self.entries):
            if _moves_champion(entry.record):
                break
            if meanwhile is not None and _asks_for_training(entry.record):
                found += meanwhile
                break
            if isinstance(entry.record, TrainingRecord):
                if meanwhile is not None:
                    break
                meanwhile = []
            elif isinstance(entry.record, WindowRecord):
                (found if meanwhile is None else meanwhile).append(entry.record)
        return found[::-1]

    def outlooks_since_training(self) -> list[WindowOutlook]:
        """What the retraining policy looks at: windows scored by this champion since the last training."""
        return [
            WindowOutlook(id=record.window.id, rows=record.rows, status=record.drift.status)
            for record in self.windows_since_training()
            if record.outcome == "scored" and record.drift is not None
        ]

    def champion_scores(self) -> list[ScoreSummary]:
        """What is kept of the scores of the last windows that the champion has scored, oldest first."""
        kept = [
            record.scores
            for record in self.windows
            if record.scores is not None and record.champion_version == self.champion
        ]
        return kept[-STREAM_WINDOWS:]

    def windows_since(self, entry: Entry | None) -> int | None:
        """How many sound windows were taken after an entry; None without one."""
        if entry is None:
            return None
        taken = (later.record for later in self.entries[entry.sequence :])
        return sum(isinstance(record, WindowRecord) and record.outcome not in SET_ASIDE for record in taken)

    @property
    def last_training(self) -> Entry | None:
        """The entry of the training that ended last, however it ended."""
        ended = (entry for entry in reversed(self.entries) if isinstance(entry.record, TrainingRecord))
        return next(ended, None)

    @property
    def champion_since(self) -> Entry | None:
        """The entry of the champion's training, or of its last move if the ledger knows no training."""
        moves = self.champion_moves()
        return (self.registration_of(moves[-1][1].version) or moves[-1][0]) if moves else None

    def training_days(self) -> list[date]:
        """The UTC day of each training that ended: the day of the window that it was decided on."""
        days: list[date] = []
        decided: datetime | None = None
        for entry in self.entries:
            if _asks_for_training(entry.record):
                taken = entry.record.event_time if isinstance(entry.record, WindowRecord) else None
                decided = taken or entry.at
            elif isinstance(entry.record, TrainingRecord):
                days.append((decided or entry.at).astimezone(UTC).date())
                decided = None
        return days

    def mute(self, now: datetime) -> MuteRecord | None:
        """The mute in force at a time: the newest one, unless it is over."""
        mutes = [entry.record for entry in self.entries if isinstance(entry.record, MuteRecord)]
        return mutes[-1] if mutes and mutes[-1].until is not None and mutes[-1].until > now else None

    def bootstrap_windows(self) -> list[WindowRecord]:
        """Every valid window that came before there was a champion."""
        return [record for record in self.latest_windows.values() if record.outcome == "bootstrap"]

    def unsettled_promotion(self) -> PromotionRecord | None:
        """The newest promotion record, if the registry's aliases have not followed it yet."""
        for entry in reversed(self.entries):
            if isinstance(entry.record, SettledRecord):
                return None
            if isinstance(entry.record, PromotionRecord):
                return entry.record
        return None

    def unjudged_training(self) -> TrainingRecord | None:
        """The newest candidate that no gate has judged yet."""
        registered = [training for training in self.trainings if training.version is not None]
        judged = {record.version for record in self.verdicts}
        return registered[-1] if registered and registered[-1].version not in judged else None

    def pending_order(self) -> WindowRecord | RetrainRecord | None:
        """What asks for a training that has not ended: a window's decision, or a person."""
        for entry in reversed(self.entries):
            if isinstance(entry.record, TrainingRecord) or _moves_champion(entry.record):
                return None
            if isinstance(entry.record, WindowRecord | RetrainRecord) and _asks_for_training(entry.record):
                return entry.record
        return None

    def muted_after(self, record: Record) -> bool:
        """Whether a person muted retraining after a record was written."""
        for entry in reversed(self.entries):
            if entry.record is record:
                return False
            if isinstance(entry.record, MuteRecord) and entry.record.until is not None:
                return True
        return False


def _moves_champion(record: Record) -> bool:
    return isinstance(record, PromotionRecord) and record.outcome in MOVES_CHAMPION


def _asks_for_training(record: Record) -> bool:
    if isinstance(record, WindowRecord):
        return record.decision is not None and record.decision.retrain
    return isinstance(record, RetrainRecord)
