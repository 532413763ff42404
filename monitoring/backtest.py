"""What a policy would have done with past windows: the loop's own functions on a ledger in memory.

No model is trained: a decision to retrain moves the reference to the rows that the training would have
stored as its own, and the candidate passes for promoted. So the data contract, the columns' drift and the
decisions are replayed; scores, alerts and tests that need a model are not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd

from monitoring.contract import QualityLimits
from monitoring.decision import event_time, with_decision
from monitoring.drift import DriftPolicy, calibrate_thresholds, drift_verdict
from monitoring.evidently_drift import column_scores
from monitoring.frames import clean_frame
from monitoring.history import History
from monitoring.inspection import Terms
from monitoring.next_step import Judge, Settle, Train, next_step
from monitoring.past_windows import past_windows
from monitoring.profile import profile_frame
from monitoring.quality import check_quality, quarantine_reason
from monitoring.records import Entry, PromotionRecord, Record, SettledRecord, TrainingRecord, WindowRecord
from monitoring.repeated import refuse_repeated
from monitoring.retraining import RetrainingPolicy
from monitoring.schema import infer_schema
from monitoring.season import LEAST_ROWS, matched_places, unmatched
from monitoring.verdicts import DriftVerdict
from training.errors import InvalidWindowError, TrainingFailedError
from training.split import split_rows
from training.types import DetectorSpec, FeatureSchema, PromotionOutcome, Window, WindowVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestPolicy:
    """What is compared: when a window counts as drifted, and when drift leads to a training."""

    name: str
    drift: DriftPolicy
    retraining: RetrainingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What all policies share: which columns are features, the data contract, and the seed of all draws."""

    time_column: str | None = None
    label_column: str | None = None
    ignore_columns: Sequence[str] = ()
    entity_column: str | None = None
    quality: QualityLimits = QualityLimits()  # noqa: RUF009 - frozen
    seed: int = 0


class Reference:
    """The rows that windows are compared with, and the newest comparison, shared by policies."""

    def __init__(
        self, rows: pd.DataFrame, schema: FeatureSchema, windows: tuple[str, ...], *, trained: int, seed: int
    ) -> None:
        self.rows, self.schema, self.windows, self.trained, self.seed = rows, schema, windows, trained, seed
        self.profile = profile_frame(rows, schema, seed=seed)
        self.thresholds = lru_cache(maxsize=16)(self._thresholds)
        self._newest: tuple[str, tuple[tuple[str, str], ...], dict[str, float | None]] | None = None

    def verdict(self, window_id: str, rows: pd.DataFrame, policy: DriftPolicy) -> DriftVerdict:
        """Judge a window's columns; without a season they are measured once, however many policies ask."""
        if policy.season != "none":
            return self._in_season(rows, policy)
        methods = tuple(policy.methods_of(self.schema).items())
        if self._newest is None or self._newest[:2] != (window_id, methods):
            scores = column_scores(self.rows, rows, self.schema, dict(methods), seed=self.seed)
            self._newest = (window_id, methods, scores)
        thresholds = self.thresholds(len(rows), policy)
        return drift_verdict(self._newest[2], self.schema, thresholds, rows=len(rows), policy=policy)

    def _in_season(self, rows: pd.DataFrame, policy: DriftPolicy) -> DriftVerdict:
        schema, seed = self.schema, self.seed
        places = matched_places(self.rows, rows, schema.time_column, policy.season, seed=seed)
        if len(places) < LEAST_ROWS:
            return unmatched(policy.season)
        own = self.rows.iloc[places]
        scores = column_scores(own, rows, schema, policy.methods_of(schema), seed=seed)
        thresholds = calibrate_thresholds(own, schema, rows=len(rows), policy=policy, seed=seed)
        return drift_verdict(scores, schema, thresholds, rows=len(rows), policy=policy)

    def _thresholds(self, rows: int, policy: DriftPolicy) -> dict[str, float]:
        return calibrate_thresholds(self.rows, self.schema, rows=rows, policy=policy, seed=self.seed)


class References:
    """The references that trainings on these windows would have left; equal trainings share one."""

    def __init__(self, read: Callable[[str], pd.DataFrame], seed: int) -> None:
        self.read, self.seed = read, seed
        self._kept: WeakValueDictionary[tuple[str, ...], Reference] = WeakValueDictionary()

    def after(self, windows: tuple[str, ...], schema: FeatureSchema | None) -> Reference:
        """Read the windows again and split them as a training does.

        Raises:
            InvalidWindowError: A window can no longer be read.
            TrainingFailedError: There is no schema, or there are too few rows to split.
        """
        if schema is None:
            raise TrainingFailedError("there is no valid window to learn the feature schema from")
        if (kept := self._kept.get(windows)) is not None:
            return kept
        rows = pd.concat([clean_frame(self.read(name), schema) for name in windows], ignore_index=True)
        training, calibration, _ = split_rows(len(rows), self.seed)
        own = rows.loc[np.concatenate([training, calibration])].drop(
            columns=schema.label_column or [], errors="ignore"
        )
        made = self._kept[windows] = Reference(own, schema, windows, trained=len(training), seed=self.seed)
        return made


class Replay:
    """One policy's replay. It keeps its records and its reference, never a window's rows."""

    def __init__(self, policy: BacktestPolicy, reading: Reading, references: References) -> None:
        self.policy, self.reading, self.references = policy, reading, references
        self.history = History()
        self.schema: FeatureSchema | None = None
        self.reference: Reference | None = None
        self.candidate: Reference | None = None
        self.started = datetime.now(UTC)
        self.taken: list[Window] = []

    @property
    def now(self) -> datetime:
        """A ledger's clock that moves on by a day a window: without event times, each is a day of its own."""
        return self.started + timedelta(days=len(self.taken))

    def take(self, window: Window, frame: pd.DataFrame, digest: str) -> None:
        """Take one window and everything that follows from it, as the loop does."""
        try:
            record = self._examined(window, frame, digest)
        except InvalidWindowError as error:
            self.set_aside(window, str(error))
            return
        self._append(
            with_decision(record, self.history, self.policy.retraining, listed=self.taken, now=self.now)
        )
        self.taken.append(window)
        while isinstance(step := next_step(self.history, self.taken), Train | Judge | Settle):
            self._append(self._carried_out(step))

    def set_aside(self, window: Window, reason: str) -> None:
        """Quarantine a window."""
        version = WindowVersion(id=window.id, fingerprint=window.fingerprint)
        self._append(WindowRecord(window=version, digest="", rows=0, outcome="quarantined", reason=reason))
        self.taken.append(window)

    def _examined(self, window: Window, frame: pd.DataFrame, digest: str) -> WindowRecord:
        reading = self.reading
        refuse_repeated(digest, window.id, self.history)
        schema = (
            self.schema
            or infer_schema(
                frame,
                time_column=reading.time_column,
                label_column=reading.label_column,
                ignore=reading.ignore_columns,
                entity_column=reading.entity_column,
            )[0]
        )
        terms = Terms(
            schema=schema,
            reference=self.reference.profile if self.reference else None,
            limits=reading.quality,
            past=past_windows(self.history, window.id, self.reference.windows if self.reference else None),
        )
        profile = profile_frame(frame, schema, seed=reading.seed)
        findings = check_quality(profile, terms, now=self.started)
        if reason := quarantine_reason(findings):
            raise InvalidWindowError(reason)
        rows = clean_frame(frame, schema)
        self.schema = schema
        record = WindowRecord(
            window=WindowVersion(id=window.id, fingerprint=window.fingerprint),
            digest=digest,
            rows=len(rows),
            outcome="bootstrap",
            reason="; ".join(finding.message for finding in findings) or "valid",
            times=profile.time.times if profile.time else None,
            event_time=event_time(frame, schema.time_column, self.now),
        )
        if self.reference is None:
            return record
        drift = self.reference.verdict(window.id, rows, self.policy.drift)
        told = replace(drift, columns=())  # a long replay keeps verdicts, not every column's distance
        return replace(record, outcome="scored", champion_version=self.history.champion, drift=told)

    def _carried_out(self, step: Train | Judge | Settle) -> Record:
        match step:
            case Train():
                return self._trained(step)
            case Judge(training=training):
                self.reference = self.candidate
                return PromotionRecord(
                    version=str(training.version),
                    from_version=self.history.champion,
                    by="gates",
                    outcome=PromotionOutcome.PROMOTED,
                    reason="a backtest trains and judges nothing",
                )
            case Settle(promotion=promotion):
                return SettledRecord(version=promotion.version)

    def _trained(self, step: Train) -> TrainingRecord:
        number = len(self.history.trainings) + 1
        error = None
        try:
            windows = tuple(window.id for window in step.windows)
            self.candidate = self.references.after(windows, self.schema)
        except (InvalidWindowError, TrainingFailedError) as failure:
            error = str(failure)
        return TrainingRecord(
            request_id=f"backtest-{number}",
            reason=step.reason,
            windows=step.windows,
            detector=DetectorSpec(),
            world_size=0,
            rows=self.candidate.trained if self.candidate and not error else 0,
            seconds=0.0,
            outcome="failed" if error else "registered",
            version=None if error else str(number),
            error=error,
        )

    def _append(self, record: Record) -> None:
        entry = Entry(sequence=self.history.next_sequence, at=self.now, record=record)
        self.history = History(entries=(*self.history.entries, entry))
