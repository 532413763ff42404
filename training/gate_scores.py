"""Gates on the candidate's own scores: finite, alerting as often as asked, and finding what was injected."""

import numpy as np

from training.gate_evidence import Evidence, GateLimits, passes, require_finite, result
from training.types import GateResult, Verdict


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
        return result("finite", Verdict.FAIL, f"NaN or infinite: {listed}", sum(wrong.values()), 0)
    if not judge.size or not injected.size:
        reason = f"{judge.size} judge and {injected.size} injected rows were scored: nothing to look at"
        return result("finite", Verdict.NOT_CHECKED, reason)
    middle = float(np.median(judge))
    spread = float(np.max(np.abs(injected - middle)))
    resolution = 1e-6 * abs(middle)  # of float32: closer scores are equal
    if spread > resolution:
        return result("finite", Verdict.PASS, "all scores are finite and differ", 0, 0)
    reason = f"the scores collapsed: every injected row scores {middle:.6g}, as the middle judge row does"
    return result("finite", Verdict.FAIL, reason, spread, resolution)


def alert_rate(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Hold the alert rate on the judge rows against the target, within a factor in both directions.

    Too many alerts are counted on the rows that are not labelled anomalous, too few on all rows, since a
    threshold may be calibrated on either.
    """
    require_finite(threshold=evidence.threshold, judge_scores=evidence.judge_scores)
    target = evidence.target_alert_rate
    alerts, normal = evidence.judge_scores > evidence.threshold, ~evidence.anomalous
    rows = int(normal.sum())
    if rows < limits.min_judge_rows:
        reason = f"{rows} judge rows are too few for an alert rate; {limits.min_judge_rows} are needed"
        return result("alert_rate", Verdict.UNDECIDED, reason)
    lowest, highest = alert_range(target, limits.alert_rate_factor, rows)
    rate, overall = float(alerts[normal].mean()), float(alerts.mean())
    reason = f"alerts on {rate:.2%} of {rows} judge rows; the target is {target:.2%}, and {lowest:.2%} to "
    reason += f"{highest:.2%} is allowed"
    if not overall >= lowest:
        return result("alert_rate", Verdict.FAIL, reason, overall, lowest)
    return result("alert_rate", passes(rate <= highest), reason, rate, highest)


def injected_anomalies(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require that the threshold finds enough of the injected anomalies; works without any label."""
    scores, bound = evidence.injected_scores, limits.injected_recall
    require_finite(threshold=evidence.threshold, injected_scores=scores)
    if scores.size < limits.min_injected_rows:
        reason = f"{scores.size} injected anomalies; {limits.min_injected_rows} are needed"
        return result("injected_anomalies", Verdict.UNDECIDED, reason, None, bound)
    found = scores > evidence.threshold
    kinds = evidence.injected_kinds
    each = ", ".join(f"{kind} {found[kinds == kind].mean():.0%}" for kind in np.unique(kinds))
    recall = float(found.mean())
    reason = f"{recall:.0%} of {scores.size} injected anomalies are found ({each}); {bound:.0%} are needed"
    return result("injected_anomalies", passes(recall >= bound), reason, recall, bound)


def alert_range(target: float, factor: float, rows: int) -> tuple[float, float]:
    """Return the lowest and highest share of `rows` rows that may be alerts.

    Where rows are few the range is three standard errors, if those are wider; the threshold was set on
    about as many rows and adds as much of an error.

    Raises:
        ValueError: Every share would be allowed.
    """
    errors = 3 * float(np.sqrt(2 * target * (1 - target) / rows))
    lowest, highest = max(0.0, min(target / factor, target - errors)), max(target * factor, target + errors)
    if not highest < 1:
        raise ValueError(f"up to {highest:.2f} would be allowed, so that no alert rate could fail")
    return lowest, highest
