"""A window whose rows came before is refused: copied data would count twice."""

import hashlib

import pandas as pd

from monitoring.history import History
from training.errors import InvalidWindowError


def content_digest(frame: pd.DataFrame) -> str:
    """Return a digest of a window's rows, in their order."""
    hashes = pd.util.hash_pandas_object(frame.astype(str), index=False).to_numpy()
    return hashlib.sha256(hashes.tobytes()).hexdigest()


def refuse_repeated(digest: str, window_id: str, history: History) -> None:
    """Refuse a window that another one held exactly the same rows as.

    Raises:
        InvalidWindowError: That is so.
    """
    if twin := history.same_content(digest, window_id):
        raise InvalidWindowError(f"holds the same rows as window {twin}")
