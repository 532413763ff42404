"""Gates on what will serve: the registered model, loaded and timed in a fresh process."""

import numpy as np

from training.gate_evidence import Evidence, GateLimits, passes, result
from training.types import GateResult, Verdict


def clean_load(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require that a fresh process reproduced the stored scores: what was trained is what will serve."""
    difference, bound = evidence.clean_load_difference, limits.score_tolerance
    if evidence.clean_load_error is not None:
        reason = f"a fresh process could not load and score: {evidence.clean_load_error}"
        return result("clean_load", Verdict.FAIL, reason, None, bound)
    if difference is None:
        return result("clean_load", Verdict.NOT_CHECKED, "no fresh process was run", None, bound)
    reason = f"a fresh process reproduces the stored scores within {difference:.3g}; allowed is {bound:.3g}"
    return result("clean_load", passes(difference <= bound), reason, difference, bound)


def cost(evidence: Evidence, limits: GateLimits) -> GateResult:
    """Require that the model is as small and as fast as where it serves demands.

    Both measures are of the registered model in the fresh process; observed and bound are those of the
    one that comes nearest to its limit.
    """
    size = evidence.artifact_bytes
    measured = {
        "megabytes": (None if size is None else size / 1e6, limits.max_artifact_megabytes),
        "microseconds a row": (evidence.microseconds_per_row, limits.max_microseconds_per_row),
    }
    known = {name: (float(value), most) for name, (value, most) in measured.items() if value is not None}
    if missing := [name for name in measured if name not in known]:
        return result("cost", Verdict.NOT_CHECKED, f"not measured: {' and '.join(missing)}")
    told = ", ".join(f"{value:.3g} {name} of at most {most:g}" for name, (value, most) in known.items())
    value, most = max(known.values(), key=lambda pair: (np.isnan(pair[0]), pair[0] / pair[1]))
    verdict = passes(all(0 < value <= most for value, most in known.values()))
    return result("cost", verdict, f"the model takes {told}", value, most)
