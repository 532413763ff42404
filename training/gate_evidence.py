"""What the gates look at and are held to, and how each says what it saw."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from training.supervision import InjectionKind
from training.types import GateResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """The bounds of all gates; rates and margins are fractions of one.

    `slices` names the columns within each of whose values a candidate is judged, too; without any, that
    gate does not apply.
    """

    alert_rate_factor: float = 3.0
    min_judge_rows: int = 100
    injected_recall: float = 0.5
    injected_kinds: tuple[InjectionKind, ...] = get_args(InjectionKind)
    min_injected_rows: int = 30
    min_labelled_anomalies: int = 30
    margin: float = 0.05
    score_tolerance: float = 1e-5
    max_artifact_megabytes: float = 500.0
    max_microseconds_per_row: float = 1000.0
    slices: tuple[str, ...] = ()
    bootstrap_repetitions: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        rows = min(self.min_judge_rows, self.min_injected_rows, self.min_labelled_anomalies)
        allowed = {
            "alert_rate_factor above 1": self.alert_rate_factor > 1,
            "injected_recall above 0, at most 1": 0 < self.injected_recall <= 1,
            f"injected_kinds one or more of {', '.join(get_args(InjectionKind))}": (
                0 < len(set(self.injected_kinds) & set(get_args(InjectionKind))) == len(self.injected_kinds)
            ),
            "margin from 0, below 1": 0 <= self.margin < 1,
            "score_tolerance above 0, below 1": 0 < self.score_tolerance < 1,
            "max_artifact_megabytes above 0": self.max_artifact_megabytes > 0,
            "max_microseconds_per_row above 0": self.max_microseconds_per_row > 0,
            "slices of different columns": len(set(self.slices)) == len(self.slices),
            "min_judge_rows, min_injected_rows and min_labelled_anomalies from 1": rows >= 1,
            "bootstrap_repetitions from 100": self.bootstrap_repetitions >= 100,  # noqa: PLR2004 - 5 in the tail
        }
        if not all(allowed.values()):
            broken = "; ".join(rule for rule, holds in allowed.items() if not holds)
            raise ValueError(f"{self} is out of range; allowed is {broken}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What the gates look at: arrays of raw scores, higher being more anomalous.

    Judge rows are the newest held-out rows, normal but for what slipped in; injected rows were made
    from them. The champion's four fields are given together or not at all, and its scores are
    recomputed on these very rows. Slices hold each row's value of a column, by the column's name; of an
    injected row that of the row it was made of. A configured column that is not there is for its gate to
    tell, as is whether the numbers are finite.
    """

    target_alert_rate: float
    threshold: float
    clean_load_difference: float | None  # `evaluate.score_difference` in a fresh process; None: not run
    clean_load_error: str | None
    microseconds_per_row: float | None  # of scoring in a fresh process; None: not measured
    artifact_bytes: float | None  # of the registered model, whole; None: not measured
    judge_scores: np.ndarray  # (judge rows,) float64
    judge_labels: np.ndarray | None  # (judge rows,) bool or 0/1; None where nobody labelled them
    injected_scores: np.ndarray  # (injected rows,) float64
    injected_kinds: np.ndarray  # (injected rows,) names
    champion_version: str | None = None
    champion_threshold: float | None = None
    champion_judge_scores: np.ndarray | None = None  # (judge rows,) float64
    champion_injected_scores: np.ndarray | None = None  # (injected rows,) float64
    judge_slices: Mapping[str, np.ndarray] = field(default_factory=dict)  # (judge rows,) texts or None
    injected_slices: Mapping[str, np.ndarray] = field(default_factory=dict)  # (injected rows,) likewise

    def __post_init__(self) -> None:
        if not 0 < self.target_alert_rate < 1:
            raise ValueError(f"target_alert_rate is {self.target_alert_rate}; it must lie between 0 and 1")
        champion = (
            self.champion_version,
            self.champion_threshold,
            self.champion_judge_scores,
            self.champion_injected_scores,
        )
        if len({field is None for field in champion}) != 1:
            raise ValueError("version, threshold and both scores of the champion are given together or not")
        if set(self.judge_slices) != set(self.injected_slices):
            raise ValueError("slices of judge rows and of injected rows are given together or not")
        judge, injected = (self.judge_scores.size,), (self.injected_scores.size,)
        shapes = {
            "judge_scores": (self.judge_scores, judge),
            "judge_labels": (self.judge_labels, judge),
            "champion_judge_scores": (self.champion_judge_scores, judge),
            "injected_scores": (self.injected_scores, injected),
            "injected_kinds": (self.injected_kinds, injected),
            "champion_injected_scores": (self.champion_injected_scores, injected),
            **{f"slice {name!r} of judge rows": (one, judge) for name, one in self.judge_slices.items()},
            **{
                f"slice {name!r} of injected rows": (one, injected)
                for name, one in self.injected_slices.items()
            },
        }
        wrong = [
            f"{name} has shape {values.shape} instead of {due}"
            for name, (values, due) in shapes.items()
            if values is not None and values.shape != due
        ]
        if wrong:
            raise ValueError(f"one value per row is needed: {', '.join(wrong)}")
        if self.judge_labels is not None and not np.isin(self.judge_labels, (0, 1)).all():
            raise ValueError("judge_labels must be 0 or 1 in every row; give None where rows are unlabelled")

    @property
    def anomalous(self) -> np.ndarray:
        """(judge rows,) bool: the rows labelled as anomalies; none where nobody labelled them."""
        if self.judge_labels is None:
            return np.zeros(self.judge_scores.size, dtype=bool)
        return np.asarray(self.judge_labels).astype(bool)


def require_finite(**values: float | np.ndarray) -> None:
    """Refuse what no gate may pass.

    Raises:
        ValueError: One of the values is NaN or infinite.
    """
    wrong = [name for name, value in values.items() if not np.isfinite(value).all()]
    if wrong:
        raise ValueError(f"NaN or infinite: {', '.join(wrong)}")


def passes(condition: bool | np.bool) -> Verdict:
    """Return a gate's verdict on a comparison that could be made."""
    return Verdict.PASS if condition else Verdict.FAIL


def result(
    gate: str, verdict: Verdict, reason: str, observed: float | None = None, bound: float | None = None
) -> GateResult:
    """Return what a gate saw; figures that are not finite are left to the reason, as JSON has no NaN."""

    def figure(value: float | None) -> float | None:
        return float(value) if value is not None and np.isfinite(value) else None

    return GateResult(
        gate=gate, verdict=verdict, observed=figure(observed), bound=figure(bound), reason=reason
    )
