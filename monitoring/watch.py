"""After a promotion, and in shadow before it: two versions on the same windows, and what follows.

A window speaks against the newer version only when its alerts or scores left what its own reference leads
to expect while those of the older version did not. Where both left it, the data changed, and drift is not a
fault of the model.
"""

from collections.abc import Callable, Iterable

from monitoring.history import History
from monitoring.promotion_policy import PromotionPolicy
from monitoring.records import Comparison, PromotionRecord, WindowRecord
from monitoring.verdicts import DriftStatus
from training.types import PromotionOutcome

TESTS = ("alerts", "scores")
"""The drift tests by which two versions are compared; each version is held against its own reference."""


def watched(history: History, policy: PromotionPolicy) -> str | None:
    """Return the previous champion while the new one is watched; None when nothing is."""
    former = _former(history)
    watching = former is not None and len(_compared(_since_move(history), former)) < policy.watch_windows
    return former if watching else None


def shadowed(history: History) -> str | None:
    """Return the challenger that scores beside the champion; None when there is none."""
    verdict = _shadow_verdict(history)
    return verdict.version if verdict else None


def rollback_by_watch(
    history: History, policy: PromotionPolicy, exists: Callable[[str], bool]
) -> PromotionRecord | None:
    """Return the record that rolls a watched champion back; None while it keeps to its limits.

    `exists` says whether a version is still registered: what is gone cannot serve.
    """
    former, champion = _former(history), history.champion
    if former is None or not policy.watch_windows:
        return None
    against = [
        record
        for record, other in _compared(_since_move(history), former)[: policy.watch_windows]
        if _speaks_against_champion(record, other)
    ]
    if len(against) < policy.watch_failures or not exists(former):
        return None
    told = "; ".join(f"{record.window.id}: {_rates(record, former)}" for record in against)
    return PromotionRecord(
        version=former,
        from_version=champion,
        by="watch",
        outcome=PromotionOutcome.ROLLED_BACK,
        reason=f"on {len(against)} windows after its promotion version {champion} left its limits while "
        f"version {former} kept to its own ({told}); version {champion} is banned",
    )


def verdict_in_shadow(history: History, policy: PromotionPolicy) -> PromotionRecord | None:
    """Return what becomes of a challenger that has scored enough windows beside the champion."""
    verdict = _shadow_verdict(history)
    if verdict is None:
        return None
    version, champion = verdict.version, history.champion

    def decided(outcome: PromotionOutcome, reason: str) -> PromotionRecord:
        return PromotionRecord(
            version=version,
            from_version=champion,
            by="gates",
            outcome=outcome,
            reason=reason,
            gates=verdict.gates,
        )

    if champion != verdict.from_version:
        told = (
            f"waits for a person: judged against champion {verdict.from_version}, but now there is {champion}"
        )
        return decided(PromotionOutcome.UNDECIDED, told)
    seen = _compared(_windows_after(history, verdict), version)
    failed = [(record, other) for record, other in seen if other.error]
    against = [record for record, other in seen if _speaks_against_other(record, other)]
    told = "; ".join(f"{record.window.id}: {_rates(record, version)}" for record, _ in seen)
    if len(failed) + len(against) >= policy.watch_failures:
        errors = "".join(f"; {record.window.id}: {other.error}" for record, other in failed)
        return decided(
            PromotionOutcome.REFUSED,
            f"refused in shadow: it left its limits on {len(against)} of {len(seen)} windows while champion "
            f"{champion} kept to its own ({told}){errors}",
        )
    if len(seen) - len(failed) < policy.shadow_windows:
        return None
    passed = f"all {len(verdict.gates)} gates passed against champion {champion}"
    return decided(
        PromotionOutcome.PROMOTED,
        f"promoted: {passed}, and it kept to its limits on {len(seen)} windows in shadow ({told})",
    )


def _former(history: History) -> str | None:
    """Return what a promotion replaced; after a rollback nothing is watched, which would only undo it."""
    moves = history.champion_moves()
    promoted = bool(moves) and moves[-1][1].outcome is PromotionOutcome.PROMOTED
    return history.previous if promoted and history.previous not in history.banned else None


def _shadow_verdict(history: History) -> PromotionRecord | None:
    challenger = history.challenger
    verdicts = [record for record in history.promotions if record.version == challenger]
    return verdicts[-1] if challenger is not None and verdicts and verdicts[-1].shadow else None


def _since_move(history: History) -> list[WindowRecord]:
    moves = history.champion_moves()
    return _windows_after(history, moves[-1][1]) if moves else []


def _windows_after(history: History, record: PromotionRecord) -> list[WindowRecord]:
    found: list[WindowRecord] = []
    for entry in reversed(history.entries):
        if entry.record is record:
            break
        if isinstance(entry.record, WindowRecord):
            found.append(entry.record)
    return found[::-1]


def _compared(windows: Iterable[WindowRecord], version: str) -> list[tuple[WindowRecord, Comparison]]:
    return [(record, other) for record in windows for other in record.compared if other.version == version]


def _champion_drifted(record: WindowRecord) -> list[str]:
    """Return which of the two tests the champion failed, or that it could not score at all."""
    if record.outcome == "quarantined":
        return ["finite scores"]
    tests = record.drift.tests if record.drift else ()
    return [test.test for test in tests if test.test in TESTS and test.status is DriftStatus.DRIFTED]


def _speaks_against_champion(record: WindowRecord, other: Comparison) -> bool:
    return not other.error and not other.drifted and bool(_champion_drifted(record))


def _speaks_against_other(record: WindowRecord, other: Comparison) -> bool:
    return not other.error and bool(other.drifted) and not _champion_drifted(record)


def _rates(record: WindowRecord, version: str) -> str:
    """Say how both versions alerted, and where they disagreed."""
    other = next(item for item in record.compared if item.version == version)
    if other.alerts is None:
        return f"version {version} could not score it"
    if record.alert_rate is None:
        return f"{record.reason}; version {version} could score it"
    rates = f"alert rate {record.alert_rate:.3f} by version {record.champion_version}"
    return f"{rates}, {other.alerts / record.rows:.3f} by version {version}, {other.disagreements} rows apart"
