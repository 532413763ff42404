"""Each gate passes what it should, fails what it should, and nothing passes by not being a number."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training import gates
from training.gate_baseline import better_than_baseline
from training.gate_evidence import Evidence, GateLimits
from training.gate_scores import alert_rate, finite, injected_anomalies
from training.gate_serving import clean_load, cost
from training.gate_slices import slices
from training.gates import GATES, run_gates
from training.types import GateResult, Verdict

LIMITS = GateLimits(bootstrap_repetitions=100, slices=("plant",))
THRESHOLD = 2.0  # of standard normal scores: 2.3 % lie above


def _evidence(**changes: Any) -> Evidence:  # noqa: ANN401 - fields of many types
    """Return the evidence on a sound candidate that has a champion of about its own quality."""
    generator = np.random.default_rng(0)
    judge, injected = generator.normal(size=1000), generator.normal(4, 1, size=80)
    kinds = np.array(["spike", "shift", "swap", "dropout"] * 20)
    evidence: dict[str, Any] = {
        "target_alert_rate": 0.02,
        "threshold": THRESHOLD,
        "clean_load_difference": 1e-7,
        "clean_load_error": None,
        "microseconds_per_row": 20.0,
        "artifact_bytes": 1_000_000,
        "judge_scores": judge,
        "judge_labels": None,
        "injected_scores": injected,
        "injected_kinds": kinds,
        "champion_version": "3",
        "champion_threshold": 20.0,
        "champion_judge_scores": 10 * (judge + generator.normal(0, 0.3, size=1000)),
        "champion_injected_scores": 10 * (injected + generator.normal(0, 0.3, size=80)),
    }
    merged = evidence | changes
    rows = {side: {"plant": _plants(np.size(merged[f"{side}_scores"]))} for side in ("judge", "injected")}
    sliced = {f"{side}_slices": column for side, column in rows.items()}
    return Evidence(**(sliced | merged))


def _plants(rows: int) -> np.ndarray:
    """Two plants in turn."""
    return np.array(["north", "south"] * rows, dtype=object)[:rows]


NO_CHAMPION: dict[str, Any] = {
    "champion_version": None,
    "champion_threshold": None,
    "champion_judge_scores": None,
    "champion_injected_scores": None,
}


def _verdicts(results: tuple[GateResult, ...]) -> dict[str, Verdict]:
    return {result.gate: result.verdict for result in results}


@pytest.mark.parametrize("champion", [{}, NO_CHAMPION], ids=["champion", "first model"])
def test_a_sound_candidate_passes_every_gate_in_order(champion: dict[str, Any]) -> None:
    results = run_gates(_evidence(**champion), LIMITS)
    assert _verdicts(results) == dict.fromkeys(GATES, Verdict.PASS)
    assert [result.gate for result in results] == list(GATES)


def test_all_failures_are_reported_together() -> None:
    broken = _evidence(
        clean_load_error="no such file",
        judge_scores=np.full(1000, 3.0),
        injected_scores=np.full(80, 3.0),
        threshold=3.5,
        microseconds_per_row=1e6,
    )
    assert _verdicts(run_gates(broken, LIMITS)) == {
        "clean_load": Verdict.FAIL,
        "cost": Verdict.FAIL,
        "finite": Verdict.FAIL,
        "alert_rate": Verdict.FAIL,
        "injected_anomalies": Verdict.FAIL,
        "better_than_baseline": Verdict.FAIL,
        "slices": Verdict.FAIL,
    }


def test_a_gate_that_raises_is_not_checked_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(evidence: Evidence, limits: GateLimits) -> GateResult:
        raise RuntimeError(f"{evidence.threshold} {limits.margin}")

    monkeypatch.setitem(gates.GATES, "finite", broken)
    results = run_gates(_evidence(), LIMITS)
    assert _verdicts(results) == dict.fromkeys(GATES, Verdict.PASS) | {"finite": Verdict.NOT_CHECKED}
    assert results[2].reason == "the gate could not be run: RuntimeError: 2.0 0.05"


# Which gates read a field: none of them passes while it is not finite.
READERS = {
    "threshold": {"finite", "alert_rate", "injected_anomalies", "better_than_baseline", "slices"},
    "clean_load_difference": {"clean_load"},
    "microseconds_per_row": {"cost"},
    "artifact_bytes": {"cost"},
    "judge_scores": {"finite", "alert_rate", "better_than_baseline", "slices"},
    "injected_scores": {"finite", "injected_anomalies", "better_than_baseline", "slices"},
    "champion_threshold": {"better_than_baseline", "slices"},
    "champion_judge_scores": {"better_than_baseline", "slices"},
    "champion_injected_scores": {"better_than_baseline", "slices"},
}


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(READERS)),
    st.sampled_from([np.nan, np.inf, -np.inf]),
    st.integers(0, 999),
    st.booleans(),
)
def test_what_is_not_finite_passes_no_gate_that_reads_it(
    field: str, value: float, place: int, labelled: bool
) -> None:
    evidence = _evidence(**(_labelled() if labelled and "injected" not in field else {}))
    broken: Any = value
    if isinstance(whole := getattr(evidence, field), np.ndarray):
        broken = whole.copy()
        broken[place % len(broken)] = value
    if (field, value) == ("clean_load_difference", -np.inf):
        return  # no difference is negative
    results = run_gates(replace(evidence, **{field: broken}), LIMITS)
    verdicts = _verdicts(results)
    assert all(verdicts[name] != Verdict.PASS for name in READERS[field])
    assert all(verdicts[name] == Verdict.PASS for name in set(GATES) - READERS[field])
    assert all(
        figure is None or np.isfinite(figure)
        for result in results
        for figure in (result.observed, result.bound)
    )


def test_every_figure_of_the_evidence_is_in_the_property_above() -> None:
    figures = {field.name for field in fields(Evidence) if "kinds" not in field.name}
    assert figures - set(READERS) == {
        "target_alert_rate",  # refused by the evidence itself, as are labels that are not 0 or 1
        "judge_labels",
        "clean_load_error",
        "champion_version",
        "judge_slices",  # values as text, or none
        "injected_slices",
    }


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000), st.sampled_from(["labelled", "unlabelled", "first"]))
def test_the_order_of_the_rows_changes_nothing(seed: int, case: str) -> None:
    changes = {"labelled": _labelled(), "unlabelled": {}, "first": NO_CHAMPION}[case]
    evidence = _evidence(**changes)
    generator = np.random.default_rng(seed)
    orders = {
        evidence.judge_scores.size: generator.permutation(evidence.judge_scores.size),
        evidence.injected_scores.size: generator.permutation(evidence.injected_scores.size),
    }
    permuted: dict[str, Any] = {
        field.name: values[orders[values.size]]
        for field in fields(Evidence)
        if isinstance(values := getattr(evidence, field.name), np.ndarray)
    }
    for side, rows in (("judge", evidence.judge_scores), ("injected", evidence.injected_scores)):
        column = getattr(evidence, f"{side}_slices")["plant"]
        permuted[f"{side}_slices"] = {"plant": column[orders[rows.size]]}
    assert run_gates(replace(evidence, **permuted), LIMITS) == run_gates(evidence, LIMITS)


@pytest.mark.parametrize(
    ("difference", "error", "verdict"),
    [
        (1e-5, None, Verdict.PASS),
        (0.0, None, Verdict.PASS),
        (1.1e-5, None, Verdict.FAIL),
        (np.nan, None, Verdict.FAIL),
        (0.0, "checksum", Verdict.FAIL),
        (None, "checksum", Verdict.FAIL),
        (None, None, Verdict.NOT_CHECKED),
    ],
)
def test_clean_load(difference: float | None, error: str | None, verdict: Verdict) -> None:
    result = clean_load(_evidence(clean_load_difference=difference, clean_load_error=error), LIMITS)
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("microseconds", "size", "verdict", "observed"),
    [
        (20.0, 1_000_000, Verdict.PASS, 20.0),  # 2 % of its limit, the size 0.2 %
        (1000.0, 499_000_000, Verdict.PASS, 1000.0),
        (1000.1, 1, Verdict.FAIL, 1000.1),
        (1.0, 500_000_001, Verdict.FAIL, 500.000001),
        (None, 1, Verdict.NOT_CHECKED, None),
        (1.0, None, Verdict.NOT_CHECKED, None),
        (1.0, 500_000_000, Verdict.PASS, 500.0),
        (np.nan, 1, Verdict.FAIL, None),
        (1.0, 0, Verdict.FAIL, 1.0),  # nothing is that small
    ],
)
def test_cost(
    microseconds: float | None, size: float | None, verdict: Verdict, observed: float | None
) -> None:
    result = cost(_evidence(microseconds_per_row=microseconds, artifact_bytes=size), LIMITS)
    assert result.verdict == verdict, result.reason
    assert result.observed == observed


SOUTH = _plants(1000) == "south"
SOUTH_INJECTED = _plants(80) == "south"


def _south(judge: float = 0.0, injected: float = 0.0, **changes: Any) -> Evidence:  # noqa: ANN401 - as above
    """Move the candidate's scores of one of the two plants."""
    sound = _evidence(**changes)
    return replace(
        sound,
        judge_scores=sound.judge_scores + judge * SOUTH,
        injected_scores=sound.injected_scores + injected * SOUTH_INJECTED,
    )


@pytest.mark.parametrize("champion", [{}, NO_CHAMPION], ids=["champion", "first model"])
def test_a_plant_that_got_worse_fails_by_name_though_all_rows_together_pass(champion: dict[str, Any]) -> None:
    noisy = _south(judge=1.0, **champion)
    found = slices(noisy, LIMITS)
    assert (found.verdict, found.observed, found.bound) == (Verdict.FAIL, 1, 0)
    assert found.reason.startswith("worse: plant 'south' alerts on 1")
    assert "of 500 rows (" in found.reason
    assert "north" not in found.reason
    assert alert_rate(noisy, replace(LIMITS, alert_rate_factor=5)).verdict == Verdict.PASS


def test_a_plant_whose_anomalies_are_missed_fails_and_one_that_is_not_sure_waits() -> None:
    blind = slices(_south(injected=-4.0), LIMITS)
    assert blind.verdict == Verdict.FAIL
    assert "'south'" in blind.reason
    assert "on 40 anomalies, -0.050 allowed" in blind.reason
    unsure = [slices(_south(injected=-moved), LIMITS) for moved in np.arange(0, 2, 0.1)]
    assert list(dict.fromkeys(result.verdict for result in unsure)) == [
        Verdict.PASS,
        Verdict.UNDECIDED,
        Verdict.FAIL,
    ]


def test_all_failing_values_are_named_and_hostile_ones_are_cut() -> None:
    names = np.array(["<b>" + "x" * 300, "'; --", None, "fine"] * 250, dtype=object)
    bad = names != "fine"
    evidence = replace(
        _evidence(judge_slices={"plant": names}, injected_slices={"plant": names[:80]}),
        judge_scores=_evidence().judge_scores + 2 * bad,
    )
    found = slices(evidence, LIMITS)
    assert (found.verdict, found.observed) == (Verdict.FAIL, 3)
    assert "'<b>xxx" in found.reason
    assert "plant no value alerts" in found.reason
    assert "fine" not in found.reason
    assert len(found.reason) < 1_000


@settings(deadline=None, max_examples=20)
@given(st.integers(100, 400), st.text(max_size=100), st.integers(0, 1000))
def test_a_group_that_alerts_on_every_row_is_named_wherever_it_stands(
    rows: int, name: str, seed: int
) -> None:
    place = np.random.default_rng(seed).permutation(1000)[:rows]
    plants, scores = np.full(1000, f"not {name}", dtype=object), _evidence().judge_scores.copy()
    plants[place], scores[place] = name, THRESHOLD + 1
    evidence = _evidence(
        judge_scores=scores, judge_slices={"plant": plants}, injected_slices={"plant": plants[:80]}
    )
    found = slices(evidence, replace(LIMITS, alert_rate_factor=10))
    assert found.verdict == Verdict.FAIL
    assert f"worse: plant {name[:79]!r}"[:60] in found.reason


def test_values_with_too_few_rows_are_told_and_no_failure() -> None:
    names = np.array([f"pump {place}" if place < 50 else "rest" for place in range(1000)], dtype=object)
    evidence = _evidence(judge_slices={"plant": names}, injected_slices={"plant": names[-80:]})
    result = slices(evidence, LIMITS)
    assert (result.verdict, result.observed) == (Verdict.PASS, 0)
    assert result.reason.startswith("worse in none of 1 checked; too few rows: plant 'pump 0' (1), ")
    assert "45 more" in result.reason


@pytest.mark.parametrize(
    ("column", "verdict"),
    [(None, Verdict.NOT_CHECKED), ("row {}", Verdict.UNDECIDED), ("north", Verdict.PASS)],
)
def test_a_column_that_is_absent_or_an_identifier_never_passes(column: str | None, verdict: Verdict) -> None:
    limits = replace(LIMITS, slices=("plant", "<line>"))
    evidence = _evidence()
    if column is not None:
        sides = {
            f"{side}_slices": {
                **getattr(evidence, f"{side}_slices"),
                "<line>": np.array([column.format(place) for place in range(rows)], dtype=object),
            }
            for side, rows in (("judge", 1000), ("injected", 80))
        }
        evidence = replace(evidence, **sides)  # type: ignore[arg-type]  # both are slices
    result = slices(evidence, limits)
    assert result.verdict == verdict
    assert ("'<line>'" in result.reason) == (verdict != Verdict.PASS)
    noisy = slices(replace(evidence, judge_scores=evidence.judge_scores + 2 * SOUTH), limits)
    assert noisy.verdict == Verdict.FAIL, "what is absent excuses nothing"


def test_as_good_as_the_champion_is_not_worse_but_as_good_as_chance_is_no_first_model() -> None:
    same = _evidence()
    same = replace(
        same,
        champion_threshold=same.threshold,
        champion_judge_scores=same.judge_scores,
        champion_injected_scores=same.injected_scores,
    )
    assert slices(same, replace(LIMITS, margin=0.0)).verdict == Verdict.PASS
    level = {"judge_scores": np.zeros(1000), "injected_scores": np.zeros(80)}
    assert slices(_evidence(**level, **NO_CHAMPION), LIMITS).verdict == Verdict.FAIL


def test_a_quiet_plant_is_blind_only_where_no_anomaly_tells() -> None:
    rows: dict[str, Any] = {
        "judge_scores": np.zeros(10_000),
        "judge_slices": {"plant": np.full(10_000, "one")},
    }
    others: dict[str, Any] = {"injected_slices": {"plant": np.full(80, "other")}, **NO_CHAMPION}
    assert slices(_evidence(**rows, **others), LIMITS).verdict == Verdict.FAIL
    others["injected_slices"] = {"plant": np.full(80, "one")}
    assert slices(_evidence(**rows, **others), LIMITS).verdict == Verdict.PASS


def test_a_noisy_plant_is_no_worse_than_under_a_sound_champion_but_drift_excuses_nothing() -> None:
    moved = _evidence().judge_scores + 1.0 * SOUTH
    lenient = replace(LIMITS, alert_rate_factor=5.0)
    noisy: dict[str, Any] = {"judge_scores": moved, "champion_judge_scores": 10 * moved}
    assert slices(_evidence(**noisy), lenient).verdict == Verdict.PASS
    assert slices(_evidence(**noisy, champion_threshold=-100.0), lenient).verdict == Verdict.FAIL


def test_slices_do_not_apply_where_no_column_is_configured() -> None:
    results = run_gates(_evidence(), replace(LIMITS, slices=()))
    assert "slices" not in _verdicts(results)
    assert slices(_evidence(), replace(LIMITS, slices=())).verdict == Verdict.NOT_CHECKED


@pytest.mark.parametrize("level", [0.0, 1.0, 1e6, -3.0])
def test_collapsed_scores_fail(level: float) -> None:
    noise = np.random.default_rng(0).normal(0, 1e-8 * abs(level), size=80)
    result = finite(
        _evidence(judge_scores=np.full(1000, level), injected_scores=level + noise, threshold=level), LIMITS
    )
    assert result.verdict == Verdict.FAIL
    assert "collapsed" in result.reason


def test_equal_rows_or_saturated_scores_are_no_collapse() -> None:
    assert finite(_evidence(judge_scores=np.zeros(1000)), LIMITS).verdict == Verdict.PASS
    assert finite(_evidence(injected_scores=np.ones(80)), LIMITS).verdict == Verdict.PASS


def test_no_scores_at_all_pass_nothing() -> None:
    nothing = np.empty(0)
    evidence = _evidence(
        judge_scores=nothing, injected_scores=nothing, injected_kinds=nothing.astype(str), **NO_CHAMPION
    )
    verdicts = _verdicts(run_gates(evidence, LIMITS))
    assert verdicts.pop("clean_load") == verdicts.pop("cost") == Verdict.PASS
    assert set(verdicts.values()) <= {Verdict.UNDECIDED, Verdict.NOT_CHECKED}


def _alerting(alerts: int, rows: int) -> np.ndarray:
    return np.where(np.arange(rows) < alerts, THRESHOLD + 1, THRESHOLD)  # on the threshold is no alert


@pytest.mark.parametrize(
    ("alerts", "rows", "verdict"),
    [
        (200, 10_000, Verdict.PASS),
        (600, 10_000, Verdict.PASS),
        (601, 10_000, Verdict.FAIL),
        (67, 10_000, Verdict.PASS),
        (66, 10_000, Verdict.FAIL),
        (0, 10_000, Verdict.FAIL),
        (0, 500, Verdict.PASS),  # ten alerts are expected; none is no proof, and other gates look
        (7, 100, Verdict.PASS),  # three standard errors beyond two expected alerts are 7.9
        (8, 100, Verdict.FAIL),
        (100, 100, Verdict.FAIL),
        (2, 99, Verdict.UNDECIDED),
    ],
)
def test_alert_rate(alerts: int, rows: int, verdict: Verdict) -> None:
    result = alert_rate(_evidence(judge_scores=_alerting(alerts, rows), **NO_CHAMPION), LIMITS)
    assert result.verdict == verdict, result.reason


def test_alerts_on_labelled_anomalies_are_not_too_many_but_do_count_as_some() -> None:
    scores = _alerting(1000, 10_000)
    labels = scores > THRESHOLD
    assert alert_rate(_evidence(judge_scores=scores, **NO_CHAMPION), LIMITS).verdict == Verdict.FAIL
    evidence = _evidence(judge_scores=scores, judge_labels=labels, **NO_CHAMPION)
    assert alert_rate(evidence, LIMITS).verdict == Verdict.PASS
    evidence = _evidence(judge_scores=scores, judge_labels=~labels, **NO_CHAMPION)
    assert alert_rate(evidence, LIMITS).verdict == Verdict.FAIL


def test_an_alert_rate_that_cannot_fail_is_not_checked() -> None:
    results = run_gates(_evidence(target_alert_rate=0.4), LIMITS)
    assert _verdicts(results)["alert_rate"] == Verdict.NOT_CHECKED


def test_injected_recall_is_held_at_the_threshold_and_told_by_kind() -> None:
    kinds = np.array(["spike"] * 40 + ["swap"] * 40)
    scores = np.concatenate((np.full(30, 3.0), np.full(10, 2.0), np.full(10, 3.0), np.full(30, 0.0)))
    result = injected_anomalies(_evidence(injected_scores=scores, injected_kinds=kinds), LIMITS)
    assert result.verdict == Verdict.PASS
    assert result.observed == 0.5
    assert "spike 75%, swap 25%" in result.reason
    scores[0] = 2.0
    result = injected_anomalies(_evidence(injected_scores=scores, injected_kinds=kinds), LIMITS)
    assert result.verdict == Verdict.FAIL


def test_few_injected_rows_decide_nothing() -> None:
    few = _evidence(injected_scores=np.full(29, 9.0), injected_kinds=np.array(["spike"] * 29), **NO_CHAMPION)
    assert injected_anomalies(few, LIMITS).verdict == Verdict.UNDECIDED
    assert better_than_baseline(few, LIMITS).verdict == Verdict.UNDECIDED


def _labelled(anomalies: int = 60) -> dict[str, Any]:
    """Label the highest-scoring judge rows of `_evidence` as anomalies."""
    scores = _evidence().judge_scores
    return {"judge_labels": scores >= np.sort(scores)[-anomalies]}


def _noise(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=rows)


def test_a_worse_candidate_fails_whether_anomalies_are_labelled_or_injected() -> None:
    worse = {"judge_scores": _noise(1, 1000), "injected_scores": _noise(2, 80)}
    for changes, word in ((_labelled(), "60 labelled"), ({}, "80 injected"), (_labelled(29), "80 injected")):
        result = better_than_baseline(_evidence(**changes, **worse), LIMITS)
        assert result.verdict == Verdict.FAIL
        assert word in result.reason
        assert "against champion 3" in result.reason


def test_labels_outweigh_injected_anomalies() -> None:
    evidence = _evidence(**_labelled(), injected_scores=_noise(2, 80))
    assert better_than_baseline(evidence, LIMITS).verdict == Verdict.PASS


def test_a_candidate_passes_within_the_margin_and_what_is_not_sure_is_undecided() -> None:
    evidence = _evidence(
        judge_scores=_evidence().judge_scores + 0.6 * _noise(5, 1000),
        injected_scores=_evidence().injected_scores + 0.6 * _noise(6, 80),
    )
    within = better_than_baseline(evidence, replace(LIMITS, margin=0.3))
    assert within.verdict == Verdict.PASS
    assert within.bound == -0.3
    assert within.observed is not None
    assert -0.3 < within.observed < 0
    # With the margin on the lower bound, the difference itself is inside and its bound is not.
    unsure = better_than_baseline(evidence, replace(LIMITS, margin=-within.observed))
    assert unsure.verdict == Verdict.UNDECIDED
    assert better_than_baseline(evidence, replace(LIMITS, margin=0.0)).verdict == Verdict.FAIL


def test_a_drifted_champion_that_finds_everything_by_alerting_on_everything_is_beaten() -> None:
    evidence = _evidence(
        champion_threshold=-100.0,
        champion_judge_scores=_noise(1, 1000),
        champion_injected_scores=_noise(2, 80),
    )
    result = better_than_baseline(evidence, LIMITS)
    assert result.verdict == Verdict.PASS
    assert "the champion's alerts on 100.0% and finds 100%" in result.reason
    assert result.observed is not None
    assert result.observed > 0.3


@pytest.mark.parametrize("seed", range(5))
def test_a_first_model_of_chance_does_not_pass(seed: int) -> None:
    chance = _evidence(judge_scores=_noise(seed, 1000), injected_scores=_noise(seed + 50, 80), **NO_CHAMPION)
    result = better_than_baseline(chance, LIMITS)
    assert result.verdict in (Verdict.FAIL, Verdict.UNDECIDED)
    assert "against chance" in result.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"target_alert_rate": np.nan},
        {"target_alert_rate": 1.0},
        {"judge_scores": np.zeros((1000, 1))},
        {"judge_scores": np.float64(1)},
        {"judge_labels": np.zeros(999)},
        {"judge_labels": np.full(1000, np.nan)},
        {"injected_kinds": np.array(["spike"])},
        {"champion_judge_scores": np.zeros(5)},
        {"champion_injected_scores": np.zeros(5)},
        {"champion_threshold": None},
        {"champion_version": None},
        {"judge_slices": {"plant": np.array(["north"])}},
        {"judge_slices": {}},
    ],
)
def test_evidence_that_does_not_fit_together_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rate|row|together"):
        _evidence(**changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alert_rate_factor", 1),
        ("injected_recall", 0),
        ("injected_recall", 1.1),
        ("margin", -0.1),
        ("margin", 1),
        ("score_tolerance", 0),
        ("min_judge_rows", 0),
        ("min_injected_rows", 0),
        ("min_labelled_anomalies", 0),
        ("bootstrap_repetitions", 99),
        ("max_artifact_megabytes", 0),
        ("max_microseconds_per_row", -1),
        ("max_microseconds_per_row", np.nan),
        ("slices", ("plant", "plant")),
        *((name, np.nan) for name in ("alert_rate_factor", "injected_recall", "margin", "score_tolerance")),
    ],
)
def test_limits_out_of_range_are_an_error(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"allowed is .*{field}"):
        GateLimits(**{field: value})  # type: ignore[arg-type]  # wrong on purpose
