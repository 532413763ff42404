"""Scores of windows that have none: those that came before the first champion, or still wait to be taken."""

from collections.abc import Iterator

from flows.installation import Installation, read_clean
from flows.monitor import score_window, store_scores
from monitoring.history import SET_ASIDE, History
from training.errors import InvalidWindowError
from training.types import Window


def score_unscored(installation: Installation, source: str) -> Iterator[str]:
    """Score every window without scores by the champion, and yield a line about each.

    What the ledger set aside is left out. A window that cannot be scored is told of, and keeps its turn.

    Raises:
        RetryableError: The store or the registry does not answer.
    """
    history = installation.ledger.load()
    if history.champion is None:
        return
    champion, opened = installation.champion(history.champion), installation.source(source)
    for window in unscored(installation, history, opened.windows()):
        try:
            rows = read_clean(opened, window, champion.schema)
            alerts = store_scores(installation, window, rows, champion, score_window(rows, champion))
        except InvalidWindowError as error:
            yield f"{window.id}  not scored: {error.message}"
            continue
        yield f"{window.id}  {len(rows)} rows scored by version {champion.version}, {alerts} alerts"


def unscored(installation: Installation, history: History, listed: list[Window]) -> list[Window]:
    """Return the windows without scores that were not set aside as they are now."""
    folder, suffix = f"scores/{installation.settings.model}/", ".parquet"
    scored = {item.key.removeprefix(folder).removesuffix(suffix) for item in installation.store.list(folder)}
    set_aside = {
        (record.window.id, record.window.fingerprint)
        for record in history.latest_windows.values()
        if record.outcome in SET_ASIDE
    }
    return [
        window
        for window in listed
        if window.id not in scored and (window.id, window.fingerprint) not in set_aside
    ]
