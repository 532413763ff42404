"""The flow `settle`: the registry's aliases follow a promotion record. Running it twice changes nothing."""

from prefect import flow

from flows.installation import open_installation
from infra.settings import Settings
from monitoring.records import PromotionRecord, SettledRecord
from training.types import PromotionOutcome


@flow(name="settle", flow_run_name="settle version {promotion.version}")
def settle(settings: Settings, promotion: PromotionRecord) -> SettledRecord:
    """Move `champion` last: until then, the old one serves. The training's copies of rows go."""
    installation = open_installation(settings)
    registry = installation.registry
    if promotion.outcome in (PromotionOutcome.PROMOTED, PromotionOutcome.ROLLED_BACK):
        if promotion.from_version is not None:
            registry.set_alias("previous", promotion.from_version)
        registry.set_alias("champion", promotion.version)
    if promotion.outcome is not PromotionOutcome.UNDECIDED:
        registry.delete_alias("challenger")
    installation.discard_rows(promotion.version)
    return SettledRecord(version=promotion.version)
