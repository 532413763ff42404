"""The evidence of the gates, reduced to the few numbers that pictures are drawn from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitoring.distances import FloatArray
from monitoring.pictures import SCORE_BINS, Histogram, histogram
from training.evaluate import average_precision, precision_recall
from training.gate_baseline import ranked_rows
from training.gate_evidence import Evidence, GateLimits

CURVE_POINTS = 101

Role = Literal["candidate", "champion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnomalies:
    """Scores of one kind of anomalies over those of the normal judge rows.

    Attributes:
        kind: Injected or labelled.
        rows: How many anomalies.
        found: The share of them above the flood mark; None where there is no such share.
        histogram: None where no score is finite.
    """

    kind: Literal["injected", "labelled"]
    rows: int
    found: float | None
    histogram: Histogram | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPicture:
    """What one of the two models makes of the rows.

    Attributes:
        threshold: Its flood mark; None where it is not finite.
        alert_rate: On the judge rows that are not labelled anomalous; None where there is no such share.
        not_finite: Scores that are NaN or infinite, and can be drawn nowhere.
    """

    role: Role
    version: str
    threshold: float | None
    alert_rate: float | None
    not_finite: int
    anomalies: tuple[ScoredAnomalies, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Precision over recall of one model: pairs of both, and the pair at its flood mark where it alerts."""

    role: Role
    average_precision: float
    points: tuple[tuple[float, float], ...]
    mark: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Model:
    role: Role
    version: str
    threshold: float
    judge: FloatArray
    injected: FloatArray


def _models(evidence: Evidence, version: str) -> Iterator[_Model]:
    yield _Model(
        role="candidate",
        version=version,
        threshold=evidence.threshold,
        judge=evidence.judge_scores,
        injected=evidence.injected_scores,
    )
    judge, injected = evidence.champion_judge_scores, evidence.champion_injected_scores
    if judge is not None and injected is not None and evidence.champion_threshold is not None:
        yield _Model(
            role="champion",
            version=str(evidence.champion_version),
            threshold=evidence.champion_threshold,
            judge=judge,
            injected=injected,
        )


def model_pictures(evidence: Evidence, version: str) -> tuple[ModelPicture, ...]:
    """Draw the scores of the candidate, `version`, and of the champion where there is one."""
    anomalous = evidence.anomalous
    pictures = []
    for model in _models(evidence, version):
        normal, threshold = model.judge[~anomalous], model.threshold
        kinds: dict[Literal["injected", "labelled"], FloatArray] = {"injected": model.injected}
        if anomalous.any():
            kinds["labelled"] = model.judge[anomalous]
        pictures.append(
            ModelPicture(
                role=model.role,
                version=model.version,
                threshold=threshold if np.isfinite(threshold) else None,
                alert_rate=_above(normal, threshold),
                not_finite=int(sum(np.sum(~np.isfinite(side)) for side in (model.judge, model.injected))),
                anomalies=tuple(
                    ScoredAnomalies(
                        kind=kind,
                        rows=len(scores),
                        found=_above(scores, threshold),
                        histogram=_histogram(normal, scores, threshold),
                    )
                    for kind, scores in kinds.items()
                ),
            )
        )
    return tuple(pictures)


def curves(evidence: Evidence, limits: GateLimits) -> tuple[tuple[Curve, ...], str]:
    """Draw precision over recall of both models on the rows that `better_than_baseline` compares them on.

    A model with a score that is not finite has no curve. Returns what the rows are in words, too.
    """
    rows = ranked_rows(evidence, limits)
    thresholds = {"candidate": evidence.threshold, "champion": evidence.champion_threshold}
    sides: dict[Role, np.ndarray | None] = {"candidate": rows.candidate, "champion": rows.champion}
    drawn = tuple(
        _curve(role, rows.labels, scores, thresholds[role])
        for role, scores in sides.items()
        if scores is not None and rows.anomalies and rows.normals and np.isfinite(scores).all()
    )
    return drawn, rows.told()


def _curve(role: Role, labels: np.ndarray, scores: FloatArray, threshold: float | None) -> Curve:
    recall, precision = precision_recall(labels, scores)
    shown = np.unique(np.minimum(np.searchsorted(recall, np.linspace(0, 1, CURVE_POINTS)), len(recall) - 1))
    alerts = np.zeros(len(scores), dtype=bool) if threshold is None else scores > threshold
    mark = (float(alerts[labels].mean()), float(labels[alerts].mean())) if alerts.any() else None
    return Curve(
        role=role,
        average_precision=average_precision(labels, scores),
        points=tuple(zip(recall[shown].tolist(), precision[shown].tolist(), strict=True)),
        mark=mark,
    )


def _above(scores: FloatArray, threshold: float) -> float | None:
    known = len(scores) > 0 and bool(np.isfinite(scores).all()) and bool(np.isfinite(threshold))
    return float((scores > threshold).mean()) if known else None


def _histogram(normal: FloatArray, anomalies: FloatArray, threshold: float) -> Histogram | None:
    sides = [side[np.isfinite(side)] for side in (normal, anomalies)]
    if not any(len(side) for side in sides):
        return None
    return histogram(*sides, bins=SCORE_BINS, shown=threshold if np.isfinite(threshold) else None)
