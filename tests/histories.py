"""Short histories for tests of pure decisions."""

from datetime import UTC, datetime, timedelta

from monitoring.history import History
from monitoring.records import (
    Comparison,
    Entry,
    PromotionRecord,
    Record,
    SettledRecord,
    TrainingRecord,
    WindowRecord,
)
from monitoring.retraining import RetrainingDecision
from monitoring.verdicts import DriftStatus, DriftTest, DriftVerdict
from training.types import (
    Column,
    DetectorSpec,
    FeatureSchema,
    ObjectVersion,
    PromotionOutcome,
    Threshold,
    Window,
    WindowVersion,
)

SCHEMA = FeatureSchema(features=(Column(name="x", kind="numeric"),))
START = datetime(2026, 1, 1, tzinfo=UTC)


def window(identifier: str, version: str = "1") -> Window:
    return Window(id=identifier, objects=(ObjectVersion(key=f"{identifier}.csv", size=1, version=version),))


def version_of(identifier: str) -> WindowVersion:
    return WindowVersion(id=identifier, fingerprint=window(identifier).fingerprint)


def history(*records: Record) -> History:
    entries = [
        Entry(sequence=place, at=START + timedelta(minutes=place), record=record)
        for place, record in enumerate(records, start=1)
    ]
    return History(entries=tuple(entries))


def bootstrap(identifier: str, *, retrain_on: tuple[str, ...] = (), rows: int = 1_000) -> WindowRecord:
    return WindowRecord(
        window=version_of(identifier),
        digest=identifier,
        rows=rows,
        outcome="bootstrap",
        reason="valid",
        schema=SCHEMA,
        decision=RetrainingDecision(retrain=bool(retrain_on), reason="first model", windows=retrain_on),
    )


def scored(
    identifier: str,
    status: DriftStatus = DriftStatus.STABLE,
    *,
    retrain_on: tuple[str, ...] = (),
    drifted: tuple[str, ...] = (),
    compared: tuple[Comparison, ...] = (),
) -> WindowRecord:
    tests = tuple(
        DriftTest(test=test, status=DriftStatus.DRIFTED, statistic=1.0, bound=0.5, reason="because")  # type: ignore[arg-type] # names of tests
        for test in drifted
    )
    return WindowRecord(
        window=version_of(identifier),
        digest=identifier,
        rows=1_000,
        outcome="scored",
        reason="valid",
        champion_version="1",
        alerts=50,
        drift=DriftVerdict(status=status, share=0.1, reason="because", tests=tests),
        compared=compared,
        decision=RetrainingDecision(retrain=bool(retrain_on), reason="drift", windows=retrain_on),
    )


def quarantined(identifier: str) -> WindowRecord:
    return WindowRecord(
        window=version_of(identifier), digest="", rows=0, outcome="quarantined", reason="unreadable"
    )


def trained(version: str | None, *windows: str) -> TrainingRecord:
    return TrainingRecord(
        request_id=f"request-{version}",
        reason="drift",
        windows=tuple(version_of(identifier) for identifier in windows),
        detector=DetectorSpec(),
        world_size=2,
        rows=100,
        seconds=1.0,
        outcome="registered" if version else "failed",
        threshold=Threshold(value=1.0, method="quantile", target_alert_rate=0.05, calibration_rows=100),
        version=version,
    )


def judged(
    version: str,
    outcome: PromotionOutcome = PromotionOutcome.PROMOTED,
    from_version: str | None = None,
) -> PromotionRecord:
    return PromotionRecord(
        version=version, from_version=from_version, by="gates", outcome=outcome, reason="gates"
    )


def settled(version: str) -> SettledRecord:
    return SettledRecord(version=version)
