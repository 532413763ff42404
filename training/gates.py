"""The gates between a registered candidate and promotion: what each one saw, and its verdict.

Every gate runs on every candidate, the first model included, and all failures are reported together.
A gate passes on `observed >= bound` alone, so NaN never passes; one that cannot be run is not checked.
To add a gate, write one function and add it to `GATES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from training.evaluate import Difference, Ranking, paired_bootstrap
from training.types import GateResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """The bounds of all gates; rates and margins are fractions of one."""

    alert_rate_factor: float = 3.0
    min_judge_rows: int = 100
    injected_recall: float = 0.5
    min_injected_rows: int = 30
    min_labelled_anomalies: int = 30
    margin: float = 0.05
    score_tolerance: float = 1e-5
    bootstrap_repetitions: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        rows = min(self.min_judge_rows, self.min_injected_rows, self.min_labelled_anomalies)
        allowed = {
            "alert_rate_factor above 1": self.alert_rate_factor > 1,
            "injected_recall above 0, at most 1": 0 < self.injected_recall <= 1,
            "margin from 0, below 1": 0 <= self.margin < 1,
            "score_tolerance above 0, below 1": 0 < self.score_tolerance < 1,
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
    recomputed on these very rows. Whether the numbers are finite is for the gates to say, not for here.
    """

    target_alert_rate: float
    threshold: float
    clean_load_difference: float | None  # `evaluate.score_difference` in a fresh process; None: not run
    clean_load_error: str | None
    judge_scores: np.ndarray  # (judge rows,) float64
    judge_labels: np.ndarray | None  # (judge rows,) bool or 0/1; None where nobody labelled them
    injected_scores: np.ndarray  # (injected rows,) float64
    injected_kinds: np.ndarray  # (injected rows,) names
    champion_version: str | None = None
    champion_threshold: float | None = None
    champion_judge_scores: np.ndarray | None = None  # (judge rows,) float64
    champion_injected_scores: np.ndarray | None = None  # (injected rows,) float64

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
        judge, injected = (self.judge_scores.size,), (self.injected_scores.size,)
        shapes = {
            "judge_scores": (self.judge_scores, judge),
            "judge_labels": (self.judge_labels, judge),
            "champion_judge_scores": (self.champion_judge_scores, judge),
            "injected_scores": (self.injected_scores, injected),
            "injected_kinds": (self.injected_kinds, injected),
            "champion_injected_scores": (self.champion_injected_scores, injected),
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


def clean_load(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require that a fresh process reproduced the stored scores: what was trained is what will serve."""
    difference, bound = evidence.clean_load_difference, limits.score_tolerance
    if evidence.clean_load_error is not None:
        reason = f"a fresh process could not load and score: {evidence.clean_load_error}"
        return _result("clean_load", Verdict.FAIL, reason, None, bound)
    if difference is None:
        return _result("clean_load", Verdict.NOT_CHECKED, "no fresh process was run", None, bound)
    reason = f"a fresh process reproduces the stored scores within {difference:.3g}; allowed is {bound:.3g}"
    return _result("clean_load", _passes(difference <= bound), reason, difference, bound)


def finite(evidence: Evidence, limits: GateLimits) -> GateResult:  # noqa: ARG001 - all gates are called alike
    """Require finite scores and threshold, and that not all injected rows score as the middle judge row."""
    judge, injected = evidence.judge_scores, evidence.injected_scores
    wrong = {
        name: int(np.sum(~np.isfinite(values)))
        for name, values in (
            ("judge scores", judge),
            ("injected scores", injected),
            ("thresholds", np.array([evidence.threshold])),
        )
    }
    if any(wrong.values()):
        listed = ", ".join(f"{number} {name}" for name, number in wrong.items() if number)
        return _result("finite", Verdict.FAIL, f"NaN or infinite: {listed}", sum(wrong.values()), 0)
    if not judge.size or not injected.size:
        reason = f"{judge.size} judge and {injected.size} injected rows were scored: nothing to look at"
        return _result("finite", Verdict.NOT_CHECKED, reason)
    middle = float(np.median(judge))
    spread = float(np.max(np.abs(injected - middle)))
    resolution = 1e-6 * abs(middle)  # of float32: closer scores are equal
    if spread > resolution:
        return _result("finite", Verdict.PASS, "all scores are finite and differ", 0, 0)
    reason = f"the scores collapsed: every injected row scores {middle:.6g}, as the middle judge row does"
    return _result("finite", Verdict.FAIL, reason, spread, resolution)


def alert_rate(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Hold the alert rate on the judge rows against the target, within a factor in both directions.

    Where rows are few the range is three standard errors, if those are wider; the threshold was set on
    about as many rows and adds as much of an error. Too many alerts are counted on the rows that are not
    labelled anomalous, too few on all rows, since a threshold may be calibrated on either.
    """
    _require_finite(threshold=evidence.threshold, judge_scores=evidence.judge_scores)
    target, factor = evidence.target_alert_rate, limits.alert_rate_factor
    alerts, normal = evidence.judge_scores > evidence.threshold, ~evidence.anomalous
    rows = int(normal.sum())
    if rows < limits.min_judge_rows:
        reason = f"{rows} judge rows are too few for an alert rate; {limits.min_judge_rows} are needed"
        return _result("alert_rate", Verdict.UNDECIDED, reason)
    errors = 3 * float(np.sqrt(2 * target * (1 - target) / rows))
    lowest = max(0.0, min(target / factor, target - errors))
    highest = max(target * factor, target + errors)
    if not highest < 1:
        raise ValueError(f"up to {highest:.2f} would be allowed, so that no alert rate could fail")
    rate, overall = float(alerts[normal].mean()), float(alerts.mean())
    reason = f"alerts on {rate:.2%} of {rows} judge rows; the target is {target:.2%}, and {lowest:.2%} to "
    reason += f"{highest:.2%} is allowed"
    if not overall >= lowest:
        return _result("alert_rate", Verdict.FAIL, reason, overall, lowest)
    return _result("alert_rate", _passes(rate <= highest), reason, rate, highest)


def injected_anomalies(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require that the threshold finds enough of the injected anomalies; works without any label."""
    scores, bound = evidence.injected_scores, limits.injected_recall
    _require_finite(threshold=evidence.threshold, injected_scores=scores)
    if scores.size < limits.min_injected_rows:
        reason = f"{scores.size} injected anomalies; {limits.min_injected_rows} are needed"
        return _result("injected_anomalies", Verdict.UNDECIDED, reason, None, bound)
    found = scores > evidence.threshold
    kinds = evidence.injected_kinds
    each = ", ".join(f"{kind} {found[kinds == kind].mean():.0%}" for kind in np.unique(kinds))
    recall = float(found.mean())
    reason = f"{recall:.0%} of {scores.size} injected anomalies are found ({each}); {bound:.0%} are needed"
    return _result("injected_anomalies", _passes(recall >= bound), reason, recall, bound)


def better_than_baseline(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require a ranking no worse than the champion's on the same rows; of a first model, better than chance.

    Anomalies are the labelled ones where there are enough, else the injected ones, against the other
    judge rows. Average precision and recall at the alert budget (an alert for each anomaly and the target
    rate of the others) are compared by a paired bootstrap: pass when both lower bounds lie above the
    bound, fail when a difference itself does not, undecided between.

    Both measures are of the ranking. After a drift the champion alerts on nearly every row, and so finds
    every anomaly at its own threshold; whether it still ranks anomalies above today's normal rows, both
    of which the judge and injected rows are, stays a fair question. Thresholds are for the other gates.
    """
    normal = ~evidence.anomalous
    labelled = int(np.sum(~normal)) >= limits.min_labelled_anomalies

    def mixed(judge: np.ndarray, injected: np.ndarray) -> np.ndarray:
        return np.concatenate((judge[normal], judge[~normal] if labelled else injected))

    candidate = mixed(evidence.judge_scores, evidence.injected_scores)
    labels = np.arange(len(candidate)) >= normal.sum()
    normals, anomalies = int(normal.sum()), int(labels.sum())
    rows = f"{anomalies} {'labelled' if labelled else 'injected'} anomalies and {normals} judge rows"
    if normals < limits.min_judge_rows or not (labelled or anomalies >= limits.min_injected_rows):
        reason = f"{rows} are too few; {limits.min_judge_rows} judge rows are needed, and "
        reason += f"{limits.min_labelled_anomalies} labelled or {limits.min_injected_rows} injected anomalies"
        return _result("better_than_baseline", Verdict.UNDECIDED, reason)

    _require_finite(threshold=evidence.threshold, scores=candidate)
    baseline, bound, name = np.zeros(len(labels)), 0.0, "chance"
    thresholds = f"the candidate's {_at_threshold(labels, candidate, evidence.threshold)}"
    champion = evidence.champion_threshold, evidence.champion_judge_scores, evidence.champion_injected_scores
    if champion[0] is not None and champion[1] is not None and champion[2] is not None:
        baseline = mixed(champion[1], champion[2])
        bound, name = -limits.margin, f"champion {evidence.champion_version}"
        _require_finite(champion_threshold=champion[0], champion_scores=baseline)
        thresholds += f", the champion's {_at_threshold(labels, baseline, champion[0])}"

    budget = (anomalies + evidence.target_alert_rate * normals) / len(labels)
    differences = _compare(labels, candidate, baseline, budget, limits)
    lower = min(difference.lower for difference in differences.values())
    listed = ", ".join(
        f"{metric} {difference.value:+.3f} (at least {difference.lower:+.3f})"
        for metric, difference in differences.items()
    )
    reason = f"against {name} on {rows}: {listed}, each to be above {bound:+.3f}; thresholds: {thresholds}"
    verdict = _passes(lower > bound)
    if verdict is Verdict.FAIL and all(difference.value > bound for difference in differences.values()):
        verdict = Verdict.UNDECIDED
    return _result("better_than_baseline", verdict, reason, lower, bound)


GATES: Final[dict[str, Callable[[Evidence, GateLimits], GateResult]]] = {
    "clean_load": clean_load,
    "finite": finite,
    "alert_rate": alert_rate,
    "injected_anomalies": injected_anomalies,
    "better_than_baseline": better_than_baseline,
}


def run_gates(evidence: Evidence, limits: GateLimits) -> tuple[GateResult, ...]:
    """Run every gate in order; one that raises is not checked, and hides none of the others."""
    results = []
    for name, gate in GATES.items():
        try:
            results.append(gate(evidence, limits))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other gates are reported too
            reason = f"the gate could not be run: {type(error).__name__}: {error}"
            results.append(_result(name, Verdict.NOT_CHECKED, reason))
    return tuple(results)


def _compare(
    labels: np.ndarray, candidate: np.ndarray, baseline: np.ndarray, budget: float, limits: GateLimits
) -> dict[str, Difference]:
    metrics: dict[str, Callable[[Ranking], float]] = {
        "average precision": Ranking.average_precision,
        f"recall at budget {budget:.1%}": lambda ranking: ranking.recall_at_budget(budget),
    }
    return {
        name: paired_bootstrap(
            metric,
            labels,
            candidate,
            baseline,
            seed=limits.seed,
            repetitions=limits.bootstrap_repetitions,
        )
        for name, metric in metrics.items()
    }


def _at_threshold(labels: np.ndarray, scores: np.ndarray, threshold: float) -> str:
    alerts = scores > threshold
    return f"alerts on {alerts[~labels].mean():.1%} and finds {alerts[labels].mean():.0%}"


def _require_finite(**values: float | np.ndarray) -> None:
    wrong = [name for name, value in values.items() if not np.isfinite(value).all()]
    if wrong:
        raise ValueError(f"NaN or infinite: {', '.join(wrong)}")


def _passes(condition: bool | np.bool) -> Verdict:
    return Verdict.PASS if condition else Verdict.FAIL


def _result(
    gate: str, verdict: Verdict, reason: str, observed: float | None = None, bound: float | None = None
) -> GateResult:
    """Figures that are not finite are left to the reason: JSON has no NaN."""

    def figure(value: float | None) -> float | None:
        return float(value) if value is not None and np.isfinite(value) else None

    return GateResult(
        gate=gate, verdict=verdict, observed=figure(observed), bound=figure(bound), reason=reason
    )
