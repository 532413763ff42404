"""The ledger catches up with what happened outside of the loop's steps: a person, a watch, a shadow."""

from collections.abc import Callable

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from flows.alerting import due
from flows.installation import Installation
from flows.notify import send
from flows.settle import follow
from infra.ledger import LedgerMovedError
from monitoring.history import History
from monitoring.reconcile import Registered, moved_by_person
from monitoring.records import PromotionRecord, Record, SettledRecord
from monitoring.watch import rollback_by_watch, verdict_in_shadow


def reconcile(installation: Installation, report: Callable[[PromotionRecord], None]) -> History:
    """Load the ledger, after recording a move of the champion that is due.

    Raises:
        LedgerMovedError: Another process wrote meanwhile; look again.
        RetryableError: The registry does not answer, or no version is left to serve.
    """
    history = installation.ledger.load()
    if history.unsettled_promotion() is None and (record := due_record(installation, history)):
        history = installation.ledger.append(history, record)
        report(record)
    return history


def reconcile_now(installation: Installation, report: Callable[[Record], None]) -> History:
    """Do what one look of the loop does but for its windows: record, let the aliases follow, tell people.

    A verdict of the gates is left to the loop, which publishes their report and its event with it.

    Raises:
        LedgerMovedError: Other processes wrote meanwhile, again and again.
        RetryableError: The registry does not answer, or no version is left to serve.
    """
    for attempt in Retrying(
        retry=retry_if_exception_type(LedgerMovedError), stop=stop_after_attempt(5), reraise=True
    ):
        with attempt:
            history = reconcile(installation, report)
            promotion = history.unsettled_promotion()
            if promotion is not None and promotion.by != "gates":
                follow(installation, promotion)
                history = installation.ledger.append(history, SettledRecord(version=promotion.version))
            while messages := due(installation.settings, history, None):
                record = send(installation.settings, messages[0])
                history = installation.ledger.append(history, record)
                report(record)
    return history


def due_record(installation: Installation, history: History) -> PromotionRecord | None:
    """Return what the ledger owes: to a person's move of the alias, to a watch, or to a shadow's end."""
    registry, policy = installation.registry, installation.settings.promotion
    registered = Registered(exists=registry.exists, foreign=installation.foreign)
    return (
        moved_by_person(history, registry.aliases().champion, registered, policy.unvetted)
        or rollback_by_watch(history, policy, registry.exists)
        or verdict_in_shadow(history, policy)
    )
