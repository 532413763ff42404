"""What is seen of a candidate within each value of a column: an average hides a group that got worse."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from training.evaluate import Difference
from training.gate_baseline import RankedRows, compared, ranked_rows
from training.gate_evidence import Evidence, GateLimits, require_finite
from training.gate_scores import alert_range
from training.types import Verdict

LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFinding:
    """What was seen within one value of a column.

    Attributes:
        value: As text; None where the rows have no value.
        rows: Judge rows that are not labelled anomalous.
        verdict: Not checked where these are too few.
        alert_rate: Of the candidate on them, at its threshold.
        allowed: The lowest and highest alert rate that pass.
        champion_alert_rate: Of the champion at its own threshold; None without one.
        anomalies: Anomalies that recall was compared on; 0 where there are too few of them.
        recall: Recall at the alert budget, less the champion's or that of chance; None without anomalies.
    """

    column: str
    value: str | None
    rows: int
    verdict: Verdict
    alert_rate: float | None = None
    allowed: tuple[float, float] | None = None
    champion_alert_rate: float | None = None
    anomalies: int = 0
    recall: Difference | None = None

    @property
    def name(self) -> str:
        """Return column and value in words, neither of them endless."""
        value = "no value" if self.value is None else repr(clipped_name(self.value))
        return f"{clipped_name(self.column)} {value}"

    def told(self, bound: float) -> str:
        """Say what was seen."""
        if self.alert_rate is None or self.allowed is None:
            return f"{self.name} has {self.rows} rows"
        alerts = f"alerts on {self.alert_rate:.2%} of {self.rows} rows"
        alerts += f" ({self.allowed[0]:.2%} to {self.allowed[1]:.2%} allowed)"
        if self.recall is None:
            return f"{self.name} {alerts}"
        found = f"recall {self.recall.value:+.3f} on {self.anomalies} anomalies, {bound:+.3f} allowed"
        return f"{self.name} {alerts}; {found}"


def slice_findings(evidence: Evidence, limits: GateLimits) -> tuple[SliceFinding, ...]:
    """Look into each value of each configured column that the evidence holds, the largest first.

    Raises:
        ValueError: A score or threshold is NaN or infinite, or every alert rate would be allowed.
    """
    require_finite(
        threshold=evidence.threshold,
        judge_scores=evidence.judge_scores,
        injected_scores=evidence.injected_scores,
    )
    if evidence.champion_judge_scores is not None and evidence.champion_injected_scores is not None:
        require_finite(
            champion_threshold=evidence.champion_threshold or 0.0,
            champion_judge_scores=evidence.champion_judge_scores,
            champion_injected_scores=evidence.champion_injected_scores,
        )
    found: list[SliceFinding] = []
    for column in limits.slices:
        if column in evidence.judge_slices:
            found += _column_findings(evidence, limits, column)
    return tuple(sorted(found, key=lambda finding: -finding.rows))


def _column_findings(evidence: Evidence, limits: GateLimits, column: str) -> Iterator[SliceFinding]:
    codes, values = pd.factorize(evidence.judge_slices[column], use_na_sentinel=False)
    counts = np.bincount(codes[~evidence.anomalous], minlength=len(values))
    for code, (value, rows) in enumerate(zip(values, counts.tolist(), strict=True)):
        name = None if pd.isna(value) else str(value)
        if rows < limits.min_judge_rows:  # of an identifier, there may be as many as rows
            yield SliceFinding(column=column, value=name, rows=rows, verdict=Verdict.NOT_CHECKED)
            continue
        made = evidence.injected_slices[column]
        injected = pd.isna(made) if name is None else made == value
        yield _finding(evidence, limits, (column, name), codes == code, np.asarray(injected, dtype=bool))


def _finding(
    evidence: Evidence,
    limits: GateLimits,
    place: tuple[str, str | None],
    judge: np.ndarray,
    injected: np.ndarray,
) -> SliceFinding:
    normal = judge & ~evidence.anomalous
    rows = int(normal.sum())
    alerts = evidence.judge_scores > evidence.threshold
    rate, overall = float(alerts[normal].mean()), float(alerts[judge].mean())
    ranked = ranked_rows(evidence, limits, judge=judge, injected=injected)
    recall = _recall(evidence, limits, ranked) if ranked.suffice(limits) else None
    champion_rate = _champion_rate(evidence, normal)
    lowest, highest = _allowed(evidence, limits, rows, champion_rate)
    quiet = recall is None and overall < lowest
    verdict = _recall_verdict(evidence, limits, recall)
    return SliceFinding(
        column=place[0],
        value=place[1],
        rows=rows,
        verdict=verdict if rate <= highest and not quiet else Verdict.FAIL,
        alert_rate=rate,
        allowed=(0.0 if recall is not None else lowest, highest),
        champion_alert_rate=champion_rate,
        anomalies=0 if recall is None else ranked.anomalies,
        recall=recall,
    )


def _allowed(
    evidence: Evidence, limits: GateLimits, rows: int, champion_rate: float | None
) -> tuple[float, float]:
    """Return the range of alert rates, widened to the champion's where that still holds its own overall.

    A group may be noisier than others; a champion that drift made alert on everything excuses nothing.
    """
    target, factor = evidence.target_alert_rate, limits.alert_rate_factor
    lowest, highest = alert_range(target, factor, rows)
    overall = _champion_rate(evidence, ~evidence.anomalous)
    if champion_rate is None or overall is None:
        return lowest, highest
    sound = overall <= alert_range(target, factor, int(np.sum(~evidence.anomalous)))[1]
    return (min(lowest, champion_rate), max(highest, champion_rate)) if sound else (lowest, highest)


def _champion_rate(evidence: Evidence, rows: np.ndarray) -> float | None:
    if evidence.champion_judge_scores is None or evidence.champion_threshold is None:
        return None
    return float((evidence.champion_judge_scores[rows] > evidence.champion_threshold).mean())


def recall_bound(evidence: Evidence, limits: GateLimits) -> float:
    """Return what a difference in recall is held against: chance is to be beaten, the champion not quite."""
    return 0.0 if evidence.champion_version is None else -limits.margin


def _recall(evidence: Evidence, limits: GateLimits, rows: RankedRows) -> Difference:
    budget = rows.budget(evidence.target_alert_rate)
    return compared(lambda ranking: ranking.recall_at_budget(budget), rows, limits)


def _recall_verdict(evidence: Evidence, limits: GateLimits, recall: Difference | None) -> Verdict:
    """Fail only where the whole interval lies beyond the bound: with few anomalies, chance moves recall.

    As good as the champion passes, as good as chance does not.
    """
    if recall is None:
        return Verdict.PASS
    bound = recall_bound(evidence, limits)
    if recall.value > bound or (recall.value == bound and evidence.champion_version is not None):
        return Verdict.PASS
    return Verdict.UNDECIDED if recall.upper > bound else Verdict.FAIL


def clipped_name(text: str) -> str:
    """Return a name or value, cut where it is endless."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
