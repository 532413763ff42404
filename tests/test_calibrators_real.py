"""Each calibrator keeps its promise on real rows: over many random splits, on rows that it has not seen.

The scorer, principal components' reconstruction error, is fitted once on rows of its own, and only which rows
calibrate and which are fresh is drawn. Ranks of exchangeable scores have an exact distribution whatever the
scores are, so the bounds are those of calibration and test sampling, at four standard errors over all splits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.stats import betabinom, binom
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from training.calibrators import CalibrationScores, ThresholdSpec
from training.conformal import discovery_mark, level_counts
from training.errors import TrainingFailedError
from training.threshold import calibrate
from training.types import Threshold

DATA = ("mammography", "shuttle", "campaign", "pendigits", "annthyroid", "nsl-kdd")
SPLITS = 200
FEW_SPLITS = 60
ERRORS = 4.0
FEW_TIES = 0.98
"""The share of distinct scores from which on the exact distribution holds in both directions."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """Scores of rows that the scorer was not fitted on."""

    normal: Array
    anomalous: Array

    @property
    def ties(self) -> bool:
        return np.unique(np.round(self.normal, 9)).size < FEW_TIES * self.normal.size

    def splits(self, rows: int, number: int = SPLITS) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield calibration scores, `rows` normal and half of the anomalous ones, and all other scores."""
        generator = np.random.default_rng(0)
        for _ in range(number):
            normal, anomalous = generator.permutation(self.normal), generator.permutation(self.anomalous)
            half = anomalous.size // 2
            yield normal[:rows], anomalous[:half], normal[rows:], anomalous[half:]


@cache
def scored_rows(folder: Path, name: str) -> Scored:
    if name == "nsl-kdd":
        days = pd.concat(
            pd.read_parquet(path) for path in sorted((folder / name / "stream").glob("*.parquet"))
        )
        labels = days["label"].to_numpy()
        rows = pd.get_dummies(days.drop(columns=["label", "event_time"])).to_numpy(np.float64)
    else:
        stored = np.load(folder / "adbench" / f"{name}.npz")
        rows, labels = stored["X"].astype(np.float64), stored["y"]
    normal = np.random.default_rng(0).permutation(np.flatnonzero(labels == 0))
    trains, others = np.split(normal[:20_000], [min(2_000, normal.size // 4)])
    scaler = StandardScaler().fit(rows[trains])
    components = PCA(max(1, rows.shape[1] // 2), random_state=0).fit(scaler.transform(rows[trains]))

    def score(part: Array) -> Array:
        scaled = scaler.transform(part)
        rebuilt = components.inverse_transform(components.transform(scaled))
        errors: Array = np.square(scaled - rebuilt).mean(axis=1)
        return errors

    return Scored(normal=score(rows[others]), anomalous=score(rows[labels == 1]))


@pytest.fixture(params=DATA)
def scored(request: pytest.FixtureRequest, shared_data: Path) -> Scored:
    return scored_rows(shared_data, request.param)


def alerts_of(
    scored: Scored, spec: ThresholdSpec, rows: int, rows_per_day: float | None = None, splits: int = SPLITS
) -> Array:
    """Return the alerts among the fresh normal rows of each split, (splits,)."""
    return np.array(
        [
            (fresh > calibrate(spec, CalibrationScores(normal=own, rows_per_day=rows_per_day)).value).sum()
            for own, _, fresh, _ in scored.splits(rows, splits)
        ]
    )


def expected_alerts(scored: Scored, rows: int, above: int) -> tuple[float, float]:
    """Return mean and deviation of a split's alerts above the `above`-th largest calibration score."""
    usual = betabinom(scored.normal.size - rows, above, rows + 1 - above)
    return float(usual.mean()), float(usual.std())


@pytest.mark.parametrize("target", [0.01, 0.05])
def test_the_quantile_keeps_the_alert_rate_at_its_target(scored: Scored, target: float) -> None:
    rows = 999
    alerts = alerts_of(scored, ThresholdSpec(target_alert_rate=target), rows)
    mean, deviation = expected_alerts(scored, rows, round(target * (rows + 1)))
    assert mean == pytest.approx(target * (scored.normal.size - rows))
    error = ERRORS * deviation / np.sqrt(SPLITS)
    assert alerts.mean() <= mean + error
    assert scored.ties or alerts.mean() >= mean - error


@pytest.mark.parametrize(("rows", "target"), [(300, 0.03), (1000, 0.01), (1000, 0.05)])
def test_a_conformal_mark_is_exceeded_too_often_in_at_most_a_tenth_of_splits(
    scored: Scored, rows: int, target: float
) -> None:
    fresh = scored.normal.size - rows
    spec = ThresholdSpec(method="conformal", target_alert_rate=target)
    above = int(binom.ppf(0.1, rows, target))
    # The fresh rows are a sample too: exactly so often are too many of them alerts.
    usual = betabinom(fresh, above, rows + 1 - above).sf(target * fresh)
    assert usual < 0.13

    def too_often(spec: ThresholdSpec) -> int:
        return int((alerts_of(scored, spec, rows) > target * fresh).sum())

    most = float(binom.isf(1e-5, SPLITS, usual))
    assert too_often(spec) <= most
    assert scored.ties or too_often(spec) >= binom.ppf(1e-5, SPLITS, usual)
    assert scored.ties or too_often(ThresholdSpec(target_alert_rate=target)) > most, "else nothing is shown"


@pytest.mark.parametrize("alerts_per_day", [5.0, 24.0])
def test_an_alert_budget_is_kept_on_the_rows_of_fresh_days(scored: Scored, alerts_per_day: float) -> None:
    rows, rows_per_day = 1000, 480.0
    spec = ThresholdSpec(method="alert_budget", alerts_per_day=alerts_per_day)
    days = (scored.normal.size - rows) / rows_per_day
    alerts = alerts_of(scored, spec, rows, rows_per_day) / days
    _, deviation = expected_alerts(scored, rows, int(alerts_per_day / rows_per_day * (rows + 1)))
    error = ERRORS * deviation / days / np.sqrt(SPLITS)
    assert alerts.mean() <= alerts_per_day + error
    one_rank = rows_per_day / (rows + 1)  # of the calibration, which the rank is rounded by
    assert scored.ties or alerts.mean() >= alerts_per_day - one_rank - error


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_f_beta_on_fresh_rows_is_as_high_as_calibration_can_tell(scored: Scored, beta: float) -> None:
    """The loss against the best mark there, which the fresh rows themselves choose, is within their error."""
    spec, losses, unaimed, errors, surplus = ThresholdSpec(method="f_beta", beta=beta), [], [], [], []
    rows = scored.normal.size // 2  # calibration and fresh rows have as many anomalies for a normal row
    for own, own_anomalies, fresh, fresh_anomalies in scored.splits(rows, FEW_SPLITS):
        found = calibrate(spec, CalibrationScores(normal=own, anomalous=own_anomalies))
        reached, error = f_beta_of(fresh, fresh_anomalies, np.array([found.value]), beta)
        every = np.concatenate([fresh, fresh_anomalies])
        best = f_beta_of(fresh, fresh_anomalies, every, beta)[0].max()
        other = calibrate(ThresholdSpec(), CalibrationScores(normal=own)).value
        losses.append(best - reached[0])
        unaimed.append(best - f_beta_of(fresh, fresh_anomalies, np.array([other]), beta)[0][0])
        errors.append(error[0])
        surplus.append(_surplus(found, fresh))
    assert np.mean(losses) < 2 * np.mean(errors)
    assert np.mean(unaimed) > np.mean(losses) or beta == 1, "a mark that knows no labels must lose more"
    assert np.abs(surplus).max() < 5
    assert np.abs(np.mean(surplus)) < 1


def f_beta_of(normal: Array, anomalous: Array, marks: Array, beta: float) -> tuple[Array, Array]:
    """Return F-beta at each mark, and its standard error by the delta method, both (marks,)."""
    found = anomalous.size - np.searchsorted(np.sort(anomalous), marks, side="right")
    false = normal.size - np.searchsorted(np.sort(normal), marks, side="right")
    due, square = anomalous.size, beta**2
    total = square * due + found + false
    by_found, by_false = (1 + square) * (square * due + false) / total**2, (1 + square) * found / total**2
    variance = by_found**2 * found * (1 - found / due) + by_false**2 * false * (1 - false / normal.size)
    return (1 + square) * found / total, np.sqrt(variance)


def _surplus(found: Threshold, fresh: Array) -> float:
    """Return by how many standard errors, of both samples, fresh normal rows are alerts too often."""
    rate = found.target_alert_rate
    error = np.sqrt(rate * (1 - rate) * (1 / found.calibration_rows + 1 / fresh.size))
    return float(((fresh > found.value).mean() - rate) / error)


def test_peaks_keep_a_target_that_the_quantile_could_keep_too(scored: Scored) -> None:
    rows, target = 1000, 0.01
    spec = ThresholdSpec(method="peaks_over_threshold", target_alert_rate=target)
    alerts = alerts_of(scored, spec, rows, splits=FEW_SPLITS)
    assert 0.7 < alerts.mean() / (scored.normal.size - rows) / target < 1.3


def test_peaks_come_within_a_factor_of_three_where_the_quantile_has_too_few_rows(scored: Scored) -> None:
    rows, target, rates = 900, 0.001, []
    for own, _, fresh, _ in scored.splits(rows, FEW_SPLITS):
        scores = CalibrationScores(normal=own)
        with pytest.raises(TrainingFailedError, match="At least 999 are needed"):
            calibrate(ThresholdSpec(target_alert_rate=target), scores)
        try:
            found = calibrate(ThresholdSpec(method="peaks_over_threshold", target_alert_rate=target), scores)
        except TrainingFailedError as error:
            assert "; the tail: " in error.message  # noqa: PT017 - a tail may be found unsound, and says why
            continue
        rates.append((fresh > found.value).mean())
    assert len(rates) >= FEW_SPLITS / 3
    assert 1 / 3 < np.mean(rates) / target < 3


@pytest.mark.parametrize("name", ["shuttle", "nsl-kdd", "annthyroid", "satellite", "cardio"])
def test_of_the_discoveries_in_a_batch_few_are_false(shared_data: Path, name: str) -> None:
    scored, rate = scored_rows(shared_data, name), 0.3
    false, found, rows = [], [], scored.normal.size * 3 // 4
    for own, anomalous, others, _ in scored.splits(rows, FEW_SPLITS):
        fresh, anomalies = others[:1000], anomalous[:300]
        batch = np.concatenate([fresh, anomalies])
        alerts = batch > discovery_mark(own, level_counts(own, batch), rate)
        false.append(alerts[: fresh.size].sum() / max(1, alerts.sum()))
        found.append(alerts[fresh.size :].mean())
    promised = rate * fresh.size / batch.size
    assert np.mean(false) <= promised + ERRORS * np.std(false) / np.sqrt(FEW_SPLITS)
    assert np.mean(found) > 0.3, "else nothing is shown"
