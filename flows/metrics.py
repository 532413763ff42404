"""Where a model's metrics go: a textfile that the loop keeps up to date, and an endpoint of its own."""

import sys

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile

from infra.settings import Settings
from monitoring.history import History
from monitoring.metrics import registry_of


def write_textfile(settings: Settings, history: History) -> None:
    """Write the metrics where the settings ask for it, atomically; a failure is told and stops nothing."""
    path = settings.metrics.textfile
    if path is None:
        return
    try:
        write_to_textfile(str(path), registry_of(lambda: history, settings.model, settings.alerts.channels))
    except OSError as error:
        sys.stderr.write(f"warning: the metrics were not written to {path}: {error}\n")


def serve(registry: CollectorRegistry, *, host: str, port: int) -> None:
    """Answer scrapes until interrupted; a ledger that cannot be read answers 500, never with nothing.

    Raises:
        OSError: The port cannot be listened on.
    """
    server, thread = start_http_server(port, host, registry)
    try:
        thread.join()
    finally:
        server.shutdown()
