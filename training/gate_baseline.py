"""The gate that compares a candidate with the champion, or a first model with chance."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from training.evaluate import Difference, Ranking, paired_bootstrap
from training.gate_evidence import Evidence, GateLimits, passes, require_finite, result
from training.types import GateResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedRows:
    """The rows on which two scorers are compared: the normal ones, then the anomalies.

    Anomalies are the labelled ones where there are enough, else the injected ones.
    """

    labels: np.ndarray  # (rows,) bool, true for an anomaly
    candidate: np.ndarray  # (rows,) float64
    champion: np.ndarray | None  # (rows,) float64; None without one
    labelled: bool

    @property
    def anomalies(self) -> int:
        """How many there are."""
        return int(self.labels.sum())

    @property
    def normals(self) -> int:
        """How many other rows there are."""
        return int(np.sum(~self.labels))

    def suffice(self, limits: GateLimits) -> bool:
        """Whether there are enough of both kinds to compare rankings on."""
        enough = self.labelled or self.anomalies >= limits.min_injected_rows
        return enough and self.normals >= limits.min_judge_rows

    def told(self) -> str:
        """Return their numbers in words."""
        kind = "labelled" if self.labelled else "injected"
        return f"{self.anomalies} {kind} anomalies and {self.normals} judge rows"

    def budget(self, target_alert_rate: float) -> float:
        """Return the alert budget as a share of the rows: all anomalies, the target rate of the others."""
        return (self.anomalies + target_alert_rate * self.normals) / len(self.labels)


def ranked_rows(
    evidence: Evidence,
    limits: GateLimits,
    *,
    judge: np.ndarray | None = None,
    injected: np.ndarray | None = None,
) -> RankedRows:
    """Choose the rows to compare rankings on, among those that two masks (rows,) leave; all without."""
    anomalous = evidence.anomalous
    among = np.ones(len(anomalous), dtype=bool) if judge is None else judge
    normal, known = among & ~anomalous, among & anomalous
    labelled = int(known.sum()) >= limits.min_labelled_anomalies
    made = np.ones(len(evidence.injected_scores), dtype=bool) if injected is None else injected

    def chosen(judge_scores: np.ndarray, injected_scores: np.ndarray) -> np.ndarray:
        anomalies = judge_scores[known] if labelled else injected_scores[made]
        return np.concatenate((judge_scores[normal], anomalies))

    candidate = chosen(evidence.judge_scores, evidence.injected_scores)
    champion = evidence.champion_judge_scores, evidence.champion_injected_scores
    return RankedRows(
        labels=np.arange(len(candidate)) >= normal.sum(),
        candidate=candidate,
        champion=None if champion[0] is None or champion[1] is None else chosen(champion[0], champion[1]),
        labelled=labelled,
    )


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
    rows = ranked_rows(evidence, limits)
    if not rows.suffice(limits):
        reason = f"{rows.told()} are too few; {limits.min_judge_rows} judge rows are needed, and "
        reason += f"{limits.min_labelled_anomalies} labelled or {limits.min_injected_rows} injected anomalies"
        return result("better_than_baseline", Verdict.UNDECIDED, reason)

    require_finite(threshold=evidence.threshold, scores=rows.candidate)
    bound, name = 0.0, "chance"
    thresholds = f"the candidate's {_at_threshold(rows.labels, rows.candidate, evidence.threshold)}"
    if rows.champion is not None and evidence.champion_threshold is not None:
        bound, name = -limits.margin, f"champion {evidence.champion_version}"
        require_finite(champion_threshold=evidence.champion_threshold, champion_scores=rows.champion)
        thresholds += (
            f", the champion's {_at_threshold(rows.labels, rows.champion, evidence.champion_threshold)}"
        )

    budget = rows.budget(evidence.target_alert_rate)
    differences = {
        "average precision": compared(Ranking.average_precision, rows, limits),
        f"recall at budget {budget:.1%}": compared(
            lambda ranking: ranking.recall_at_budget(budget), rows, limits
        ),
    }
    lower = min(difference.lower for difference in differences.values())
    listed = ", ".join(
        f"{metric} {difference.value:+.3f} (at least {difference.lower:+.3f})"
        for metric, difference in differences.items()
    )
    reason = f"against {name} on {rows.told()}: {listed}, each to be above {bound:+.3f}; "
    reason += f"thresholds: {thresholds}"
    verdict = passes(lower > bound)
    if verdict is Verdict.FAIL and all(difference.value > bound for difference in differences.values()):
        verdict = Verdict.UNDECIDED
    return result("better_than_baseline", verdict, reason, lower, bound)


def compared(metric: Callable[[Ranking], float], rows: RankedRows, limits: GateLimits) -> Difference:
    """Bound the difference between the candidate and the champion, or chance, on the same rows."""
    baseline = np.zeros(len(rows.labels)) if rows.champion is None else rows.champion
    return paired_bootstrap(
        metric,
        rows.labels,
        rows.candidate,
        baseline,
        seed=limits.seed,
        repetitions=limits.bootstrap_repetitions,
    )


def _at_threshold(labels: np.ndarray, scores: np.ndarray, threshold: float) -> str:
    alerts = scores > threshold
    return f"alerts on {alerts[~labels].mean():.1%} and finds {alerts[labels].mean():.0%}"
