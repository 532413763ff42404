"""The flow `settle`: registry and pages follow a promotion record. Running it twice changes nothing."""

from dataclasses import asdict

from prefect import flow
from prefect.artifacts import create_table_artifact

from flows.events import emit
from flows.installation import Installation, open_installation
from infra.registry import Aliases, Registry
from infra.settings import Settings
from monitoring.history import MOVES_CHAMPION
from monitoring.records import PromotionRecord, SettledRecord, TrainingRecord
from training.types import PromotionOutcome

EVENTS = {
    PromotionOutcome.PROMOTED: "floodmark.model.promoted",
    PromotionOutcome.REFUSED: "floodmark.model.refused",
    PromotionOutcome.ROLLED_BACK: "floodmark.model.rolled_back",
}


@flow(name="settle", flow_run_name="settle version {promotion.version}")
def settle(settings: Settings, promotion: PromotionRecord) -> SettledRecord:
    """Publish a verdict that is in the ledger: gate report, aliases, event."""
    installation = open_installation(settings)
    gates = [asdict(gate) for gate in promotion.gates]
    if gates:
        installation.registry.report_gates(promotion.version, promotion.outcome.value, gates)
        told = f"version {promotion.version}: {promotion.reason}"
        create_table_artifact(table=gates, key="gate-report", description=told)
    follow(installation, promotion)
    if event := EVENTS.get(promotion.outcome):
        emit(settings, event, version=promotion.version, champion=promotion.from_version)
    return SettledRecord(version=promotion.version)


def follow(installation: Installation, promotion: PromotionRecord) -> None:
    """Let the aliases follow a promotion record, `champion` last: until then, the old one serves.

    A champion that is neither the old nor the new one was set by a person since the verdict. It stays,
    and becomes a record of its own on the next look.
    """
    registry = installation.registry
    aliases = registry.aliases()
    if promotion.outcome is PromotionOutcome.PUT_BACK:
        put_back(registry, aliases, promotion)
        return
    # A version that was deleted since the verdict cannot serve: the next look says what follows.
    moves = promotion.outcome in MOVES_CHAMPION and registry.exists(promotion.version)
    if moves and aliases.champion in (None, promotion.from_version, promotion.version):
        if promotion.from_version is not None and registry.exists(promotion.from_version):
            registry.set_alias("previous", promotion.from_version)
        registry.set_alias("champion", promotion.version)
    if promotion.outcome is not PromotionOutcome.UNDECIDED and aliases.challenger == promotion.version:
        registry.delete_alias("challenger")
    discard_rows(installation, promotion.version)


def put_back(registry: Registry, aliases: Aliases, promotion: PromotionRecord) -> None:
    """Undo a person's move of the alias, unless it was moved again since."""
    if aliases.champion not in (None, promotion.version):
        return
    if promotion.from_version is not None:
        registry.set_alias("champion", promotion.from_version)
    elif aliases.champion is not None:
        registry.delete_alias("champion")


def discard_rows(installation: Installation, version: str) -> None:
    """Delete the rows that a version was trained and judged on; its log and result stay."""
    entry = installation.ledger.load().registration_of(version)
    if entry is not None and isinstance(entry.record, TrainingRecord):
        for rows in installation.training_folder(entry.record.request_id).glob("*.parquet"):
            rows.unlink(missing_ok=True)
