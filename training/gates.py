"""The gates between a registered candidate and promotion: what each one saw, and its verdict.

Every gate that applies runs on every candidate, the first model included, and all failures are reported
together. A gate passes on `observed >= bound` alone, so NaN never passes; one that cannot be run is not
checked. To add a gate, write one function in a module of its family and add it to `GATES`.
"""

from collections.abc import Callable
from typing import Final

from training.gate_baseline import better_than_baseline
from training.gate_evidence import Evidence, GateLimits, result
from training.gate_scores import alert_rate, finite, injected_anomalies
from training.gate_serving import clean_load, cost
from training.gate_slices import slices
from training.types import GateResult, Verdict

Gate = Callable[[Evidence, GateLimits], GateResult]

GATES: Final[dict[str, Gate]] = {
    "clean_load": clean_load,
    "cost": cost,
    "finite": finite,
    "alert_rate": alert_rate,
    "injected_anomalies": injected_anomalies,
    "better_than_baseline": better_than_baseline,
    "slices": slices,
}


def gates_of(limits: GateLimits) -> dict[str, Gate]:
    """Return the gates that apply, in order: all but `slices` where no columns are configured for it."""
    return {name: gate for name, gate in GATES.items() if name != "slices" or limits.slices}


def run_gates(evidence: Evidence, limits: GateLimits) -> tuple[GateResult, ...]:
    """Run every gate that applies, in order; one that raises is not checked, and hides none of the others."""
    results = []
    for name, gate in gates_of(limits).items():
        try:
            results.append(gate(evidence, limits))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other gates are reported too
            reason = f"the gate could not be run: {type(error).__name__}: {error}"
            results.append(result(name, Verdict.NOT_CHECKED, reason))
    return tuple(results)
