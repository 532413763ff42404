"""The contamination guard: which rows of new windows may train a model, and which may set its threshold.

Unlabelled anomalies do harm twice: a model that trains on them calls them normal, and a threshold that is
calibrated on them lies above them. But after a drift the champion alerts on what is normal now, and without
its alerts the next model would be trained on the past. So it is asked in a way that survives a drift:

1. Rows labelled anomalous are left out.
2. Of the others, those that the champion alerts on are suspects. Where its alert rate shows a drift, they
   must be alerts also with each column's change of location and scale taken out.
3. Only so many suspects are left out as there may be anomalies, the champion's highest scores first.
4. A champion that still alerts on more cannot tell, and where there is none all rows are suspects. Then those
   in the sparsest surroundings come first: a new kind of normal is dense, whereas fewer rows than may be
   anomalies have no dense surroundings even if they are all alike. The measure is the distance to the k-th
   nearest neighbour (Ramaswamy, Rastogi and Shim 2000, "Efficient algorithms for mining outliers from large
   data sets") with a k as large as their number.

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
    counts with the lower of its two scores, as it arrived and with the drift from `reference` taken out.

    Raises:
        TrainingFailedError: A score is not finite, so that it is unknown whether its row is an alert.
    """
    threshold = scorer.threshold
    scores = scorer.score(rows)
    if len(rows) and np.mean(scores > threshold.value) > factor * threshold.target_alert_rate:
        scores = np.minimum(scores, scorer.score(without_drift(rows, reference, scorer.schema)))
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
    rate: a threshold set without the normal tail would raise more alerts than it was asked to. Where most
    suspects must be normal the champion cannot tell them apart: then neighbours do, and since any part of
    those that are left out of training may be normal, half of them calibrate.

    Args:
        rows: New rows with all features of the schema.
        schema: The features.
        known: (rows,), true for a row labelled anomalous.
        excess: (rows,) of `champion_excess`; None without a champion, and then every row is a suspect.
        target_alert_rate: The champion's; without one, the next model's.
        policy: Holds the share of rows that may be anomalies.
        seed: Of the sample among which neighbours are sought.

    Raises:
        TrainingFailedError: More than half of the rows would be left out.
    """
    suspects = np.flatnonzero(~known if excess is None else ~known & (excess > 0))
    judged = len(rows) - int(known.sum())
    may_be, alarms = int(policy.trim_share * judged), int(target_alert_rate * judged)
    trained = min(len(suspects), may_be + alarms)
    if excess is not None and len(suspects) <= 2 * (may_be + alarms):
        rule, worst = "champion's score", np.argsort(-excess[suspects], kind="stable")
        calibrated = min(max(0, len(suspects) - alarms), may_be)
    else:
        share = (may_be + alarms) / max(1, judged)
        rule, worst = "sparse surroundings", _sparsest_first(rows, schema, suspects, ~known, share, seed)
        calibrated = trained // 2
    training, calibration = ~known, ~known
    training[suspects[worst[:trained]]] = False
    calibration[suspects[worst[:calibrated]]] = False
    reason = (
        f"of {len(rows)} rows, {int(known.sum())} labelled anomalous are left out, and of {len(suspects)} "
        f"suspects, by {rule}, {trained} from training and {calibrated} from calibration"
    )
    if not training.mean() >= 1 - MOST_LEFT_OUT:
        raise TrainingFailedError(
            f"the contamination guard would leave out more than {MOST_LEFT_OUT:.0%} of the rows: {reason}",
            hint="Nothing was trained; check the label column, or train on other windows.",
        )
    return GuardedRows(training=training, calibration=calibration, reason=reason)


def _sparsest_first(  # noqa: PLR0913, PLR0917 - what `guard_rows` knows
    rows: pd.DataFrame, schema: FeatureSchema, suspects: Positions, unlabelled: Mask, share: float, seed: int
) -> Positions:
    """Return the order of the suspects, those furthest from their k-th neighbour first.

    k is `share` of a sample of the rows. Preprocessing and sample are taken again without the sample's own
    sparsest rows, so that what is to be left out has no say in the scale of the columns.
    """
    drawn = np.random.default_rng(seed).permutation(np.flatnonzero(unlabelled))[:SAMPLE]
    sample = rows.iloc[np.sort(drawn)].reset_index(drop=True)
    for _ in range(2):
        preprocessing = fit_preprocessing(schema, sample, lambda own: own)
        anchors = preprocessing.transform(sample)
        k = min(len(anchors), math.ceil(share * len(anchors)) + 1)  # the nearest is the row itself
        kept = int((1 - share) * len(anchors))
        thin = _neighbour_distance(anchors, anchors, k)
        sample = sample.iloc[np.sort(np.argsort(thin, kind="stable")[: max(1, kept)])].reset_index(drop=True)
    distances = _neighbour_distance(preprocessing.transform(rows.iloc[suspects]), anchors, k)
    return np.argsort(-distances, kind="stable")


def _neighbour_distance(features: npt.NDArray[np.float32], anchors: npt.NDArray[np.float32], k: int) -> Array:
    """Return each row's squared distance to its k-th nearest anchor, (rows,)."""
    lengths = np.square(anchors, dtype=np.float64).sum(axis=1)
    found = np.empty(len(features))
    for start in range(0, len(features), ROWS_PER_CHUNK):
        chunk = features[start : start + ROWS_PER_CHUNK].astype(np.float64)
        squared = np.square(chunk).sum(axis=1)[:, None] + lengths - 2 * chunk @ anchors.T
        found[start : start + ROWS_PER_CHUNK] = np.partition(squared, k - 1, axis=1)[:, k - 1]
    return found
