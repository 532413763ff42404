"""What is said of a window: how far it is from the reference, and what is kept of its scores."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class DriftStatus(StrEnum):
    """INCONCLUSIVE never passes for STABLE."""

    STABLE = "STABLE"
    DRIFTED = "DRIFTED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDrift:
    """One column's distance from the reference; `score` is None when it could not be computed."""

    column: str
    method: str
    score: float | None
    threshold: float

    @property
    def drifted(self) -> bool | None:
        """None when there is no score: unknown is neither drifted nor stable."""
        return None if self.score is None else self.score >= self.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftTest:
    """One test of a window as a whole; `statistic` is None when it could not be computed."""

    test: Literal["joint", "scores", "alerts", "stream"]
    status: DriftStatus
    statistic: float | None
    bound: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftVerdict:
    """The verdict on one window over all tests; `share` is the share of the scored columns that drifted."""

    status: DriftStatus
    share: float | None
    reason: str
    columns: tuple[ColumnDrift, ...] = ()
    tests: tuple[DriftTest, ...] = ()

    @property
    def drifted_tests(self) -> list[str]:
        """Names of the tests of the window as a whole that found a change."""
        return [test.test for test in self.tests if test.status is DriftStatus.DRIFTED]

    @property
    def drifted_columns(self) -> list[str]:
        """Names of the drifted columns, the furthest beyond its threshold first."""
        drifted = [column for column in self.columns if column.drifted]
        drifted.sort(key=lambda column: (column.score or 0.0) / column.threshold, reverse=True)
        return [column.column for column in drifted]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """What is kept of a window's scores: quantiles, and where they stand among the champion's own.

    Attributes:
        quantiles: Score at the probabilities .5, .9, .99 and 1, by the probability's text.
        ranks: Mean rank of consecutive stretches of rows among the champion's held-out scores, each from 0
            to 1; 0.5 is expected of unchanged rows.
        stretch: Rows of one stretch, on average.
    """

    quantiles: dict[str, float]
    ranks: tuple[float, ...] = ()
    stretch: float = 0.0
