"""What the ranks of a training leave for whoever launched them: a result written last, or errors."""

from dataclasses import dataclass
from pathlib import Path

RESULT = "result.json"
ERRORS = "error-rank-*.json"
LOST_PEER = "HorovodInternalError"
"""The type under which a rank reports that another one is gone: never the cause of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """What one rank failed of; `retryable` says whether the same job may succeed later."""

    rank: int
    type: str
    message: str
    traceback: str
    retryable: bool


def error_file(output: Path, rank: int) -> Path:
    """Return where a rank writes its error."""
    return output / ERRORS.replace("*", str(rank))
