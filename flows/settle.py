"""The flow `settle`: the registry's aliases follow a promotion record. Running it twice changes nothing."""

from prefect import flow

from flows.installation import open_installation
from infra.settings import Settings
from monitoring.records import PromotionRecord, SettledRecord


@flow(name="settle", flow_run_name="settle version {promotion.version}")
def settle(settings: Settings, promotion: PromotionRecord) -> SettledRecord:
    """Let the aliases follow."""
    return open_installation(settings).settle(promotion)
