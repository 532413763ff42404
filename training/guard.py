"""The contamination guard: which rows of new windows may train a model, and which may set its threshold.

Unlabelled anomalies do harm twice: a model that trains on them calls them normal, and a threshold that is
calibrated on them lies above them. But after a drift the champion alerts on what is normal now, and without
its alerts the next model would be trained on the past. So it is asked in a way that survives a drift:

1. Rows labelled anomalous are left out; without a champion, only they are.
2. Of the others, those that the champion alerts on are suspects. Where its alert rate shows a drift, they
   must be alerts also with each column's change of location and scale taken out.
3. Only so many suspects are left out as there may be anomalies: those that come first both by the champion's
   score and by how sparse their surroundings are among the new rows. A new kind of normal is dense, whereas
   fewer rows than may be anomalies have no dense surroundings even if they are all alike. The measure is the
   distance to the k-th nearest neighbour (Ramaswamy, Rastogi and Shim 2000, "Efficient algorithms for mining
   outliers from large data sets") with a k as large as their number.
4. A champion that still alerts on far more cannot tell, and the surroundings alone decide.

Fitting on all but the worst rows, their share bounded in advance, is trimmed estimation (Rousseeuw 1984;
Shen and Sanghavi 2019, "Learning with bad training data via iterative trimmed loss minimization").
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from training.errors import TrainingFailedError
from training.preprocessing import fit_preprocessing
from training.scorer import Scorer
from training.types import FeatureSchema, GuardPolicy

MOST_LEFT_OUT = 0.5
"""Of all rows; what remains of more would be another population, and no model is trained on it."""
SAMPLE = 4_000
"""Rows among which neighbours are sought, whatever the number of rows: a large k bears sampling."""
ROWS_PER_CHUNK = 2_048
MIDDLE = np.linspace(0.05, 0.95, 19)
"""The quantiles that drift is read from: few anomalies do not reach them."""

MOVED = 0.1
"""In standard deviations of the reference: Evidently's default bound for the Wasserstein distance."""

Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardedRows:
    """`training` and `calibration` have shape (rows,), true for a row that may be used; `reason` says why."""

    training: Mask
    calibration: Mask
    reason: str


def champion_excess(scorer: Scorer, reference: pd.DataFrame, rows: pd.DataFrame, factor: float) -> Array:
    """Return by how much the champion scores each row above its threshold, (rows,); positive is an alert.

    Up to `factor` times its target alert rate the champion is taken at its word. Beyond, that is drift: a row
    counts with the lower of its two scores, as it arrived and with the drift from `reference` taken out. If
    that brings the alert rate back within the factor, drift explains all alerts, and none is left.

    Raises:
        TrainingFailedError: A score is not finite, so that it is unknown whether its row is an alert.
    """
    threshold, scores = scorer.threshold, scorer.score(rows)
    allowed = factor * threshold.target_alert_rate * len(rows)
    if np.sum(scores > threshold.value) > allowed:
        scores = np.minimum(scores, scorer.score(without_drift(rows, reference, scorer.schema)))
        if np.sum(scores > threshold.value) <= allowed:
            scores = np.minimum(scores, threshold.value)
    if wrong := int((~np.isfinite(scores)).sum()):
        raise TrainingFailedError(
            f"{wrong} of {len(scores)} scores of the champion are not finite: its alerts cannot be told",
            hint="Nothing was trained; look at the rows, or promote another version.",
        )
    return scores - threshold.value


def without_drift(rows: pd.DataFrame, reference: pd.DataFrame, schema: FeatureSchema) -> pd.DataFrame:
    """Move and scale each drifted numeric column so that its middle quantiles lie where the reference's do.

    Drifted are those whose middle quantiles moved by more than `MOVED` standard deviations on average.
    Columns whose middle is constant are only moved; those without a value stay as they are.
    """
    moved = rows.copy(deep=False)
    for name in schema.names("numeric"):
        values, target = rows[name].to_numpy(np.float64), reference[name].to_numpy(np.float64)
        if np.isnan(values).all() or np.isnan(target).all():
            continue
        here, there = np.nanquantile(values, MIDDLE), np.nanquantile(target, MIDDLE)
        if np.abs(here - there).mean() > MOVED * np.nanstd(target):
            scale = there.std() / here.std() if here.std() > 0 and there.std() > 0 else 1.0
            with np.errstate(over="ignore"):  # what leaves the range counts as missing
                moved[name] = (values - np.median(here)) * scale + np.median(there)
    return moved


def guard_rows(  # noqa: PLR0913 - the evidence, and what is decided by
    rows: pd.DataFrame,
    schema: FeatureSchema,
    *,
    known: Mask,
    excess: Array | None,
    target_alert_rate: float,
    policy: GuardPolicy,
    seed: int,
) -> GuardedRows:
    """Decide which rows may train, and which may calibrate the threshold.

    Training leaves out suspects up to the share that may be anomalies and the target alert rate together,
    because that many normal rows are alerts too. Calibration leaves out only those beyond the target alert
    rate, and no more than half the share that may be anomalies: a threshold set without the normal tail
    raises more alerts than it was asked to, and how many suspects are normal, none or all, is unknown.

    Args:
        rows: New rows with all features of the schema.
        schema: The features.
        known: (rows,), true for a row labelled anomalous.
        excess: (rows,) of `champion_excess`, of any value where `known`; None without a champion.
        target_alert_rate: The champion's.
        policy: Holds the share of rows that may be anomalies.
        seed: Of the sample among which neighbours are sought.

    Raises:
        TrainingFailedError: More than half of the rows would be left out.
    """
    training, calibration = ~known, ~known
    reason = f"of {len(rows)} rows, {int(known.sum())} labelled anomalous are left out"
    if excess is not None:
        suspects = np.flatnonzero(~known & (excess > 0))
        may_be, alarms = (int(share * (~known).sum()) for share in (policy.trim_share, target_alert_rate))
        trained = min(len(suspects), may_be + alarms)
        place = _places(-_distances(rows, schema, suspects, known, trained, seed)) if trained else suspects
        if len(suspects) <= 2 * (may_be + alarms):
            rule, place = "score and surroundings", np.maximum(place, _places(-excess[suspects]))
        else:
            rule = "surroundings"
        calibrated = min(max(0, len(suspects) - alarms), may_be // 2)
        worst = suspects[np.argsort(place, kind="stable")]
        training[worst[:trained]] = False
        calibration[worst[:calibrated]] = False
        left_out = f"by {rule}, {trained} from training and {calibrated} from calibration"
        reason += (
            f", and of {len(suspects)} suspects, {left_out}" if len(suspects) else "; no other is suspect"
        )
    if not training.sum() >= (1 - MOST_LEFT_OUT) * len(rows):
        raise TrainingFailedError(
            f"the contamination guard would leave out more than {MOST_LEFT_OUT:.0%} of the rows: {reason}",
            hint="Nothing was trained; check the label column, or train on other windows.",
        )
    return GuardedRows(training=training, calibration=calibration, reason=reason)


def _places(keys: Array) -> Positions:
    """Return each key's place in ascending order, from 0; equal keys in the order they stand in."""
    return np.argsort(np.argsort(keys, kind="stable"), kind="stable")


def _distances(  # noqa: PLR0913, PLR0917 - what `guard_rows` knows
    rows: pd.DataFrame, schema: FeatureSchema, suspects: Positions, known: Mask, anomalies: int, seed: int
) -> Array:
    """Return how far each suspect is from its k-th neighbour, squared, (suspects,).

    k is as large a part of a sample of the rows as `anomalies` is of all. Preprocessing and sample are taken
    again without the sample's own sparsest rows: what is to be left out must not scale the columns.
    """
    unlabelled = np.flatnonzero(~known)
    share = anomalies / len(unlabelled)
    drawn = np.random.default_rng(seed).permutation(unlabelled)[:SAMPLE]
    sample = rows.iloc[np.sort(drawn)].reset_index(drop=True)
    for _ in range(2):
        preprocessing = fit_preprocessing(schema, sample, lambda own: own)
        anchors = preprocessing.transform(sample)
        k = min(len(anchors), math.ceil(share * len(anchors)) + 1)  # the nearest is the row itself
        distances = _neighbour_distance(anchors, anchors, k)
        dense = np.argsort(distances, kind="stable")[: math.ceil((1 - share) * len(anchors))]
        sample = sample.iloc[np.sort(dense)].reset_index(drop=True)
    return _neighbour_distance(preprocessing.transform(rows.iloc[suspects]), anchors, k)


def _neighbour_distance(features: npt.NDArray[np.float32], anchors: npt.NDArray[np.float32], k: int) -> Array:
    """Return each row's squared distance to its k-th nearest anchor, (rows,)."""
    lengths = np.square(anchors, dtype=np.float64).sum(axis=1)
    found = np.empty(len(features))
    for start in range(0, len(features), ROWS_PER_CHUNK):
        chunk = features[start : start + ROWS_PER_CHUNK].astype(np.float64)
        squared = np.square(chunk).sum(axis=1)[:, None] + lengths - 2 * chunk @ anchors.T
        found[start : start + ROWS_PER_CHUNK] = np.partition(squared, k - 1, axis=1)[:, k - 1]
    return found
