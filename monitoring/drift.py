"""From column scores to a drift verdict, against thresholds calibrated for the window's size.

A distance between two samples is never zero, and it grows as the window shrinks: at a fixed 0.1 most
columns of a 50-row window "drift" without any change. So the champion's reference is resampled to
learn how far an unchanged window of this size strays, and a column drifts only beyond that.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pandas as pd

from monitoring.cells import cells_of
from monitoring.distances import METHODS, ROW_CAP, FloatArray, capped_sample
from monitoring.frames import clean_frame
from monitoring.season import Season
from monitoring.verdicts import ColumnDrift, DriftStatus, DriftVerdict
from training.errors import ConfigurationError, InvalidArtifactError
from training.types import ColumnKind, FeatureSchema

TESTS, SCORE_TESTS = 3, 3
"""Kinds of test that share `alpha`: columns, joint, scores; and tests of the scores that share a third."""

WINDOWS, LEAST_WINDOWS = 2_000, 400
"""Unchanged windows that are drawn, and how few at least for very wide tables."""

BEYOND = 5
"""Drawn windows that are to lie beyond a bound, where there is room to draw so many."""

CELL_BUDGET = 40_000_000
"""Drawn windows times cells of all columns: what keeps a table of thousands of columns to seconds."""

SHOWN_COLUMNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy:
    """When a window counts as drifted.

    Attributes:
        alpha: Chance that an unchanged window is called drifted, over all tests together.
        drift_share: Share of the scored columns that must drift; one column always must, and at 0 is enough.
        numeric_method: How numeric columns are compared, one of `distances.METHODS`.
        categorical_method: Likewise for categorical columns.
        methods: Methods of single columns, by name.
        numeric_threshold: Least distance of a numeric column that matters, however certain.
        categorical_threshold: Least distance of a categorical column that matters.
        min_rows: Rows below which a window is inconclusive. False alarms are calibrated for any size; this
            is about what a small window can show.
        max_unscored_share: Share of unscored columns beyond which a window is inconclusive.
        season: By what the reference is matched with the window, if at all: hour or weekday, in UTC.
    """

    alpha: float = 0.01
    drift_share: float = 0.0
    numeric_method: str = "wasserstein"
    categorical_method: str = "jensenshannon"
    methods: dict[str, str] = field(default_factory=dict, hash=False)  # so that a policy can be a key
    numeric_threshold: float = 0.1
    categorical_threshold: float = 0.1
    min_rows: int = 200
    max_unscored_share: float = 0.2
    season: Season = "none"

    def __post_init__(self) -> None:
        for name in ("numeric_threshold", "categorical_threshold"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigurationError(f"{name} is {value}; it must be a finite number above 0")
        if not 0 <= self.drift_share <= 1:
            raise ConfigurationError(f"drift_share is {self.drift_share}; it must lie between 0 and 1")
        if not TESTS / LEAST_WINDOWS <= self.alpha <= 0.5:  # noqa: PLR2004 - beyond, the quantile means nothing
            raise ConfigurationError(
                f"alpha is {self.alpha}; {LEAST_WINDOWS} drawn windows support {TESTS / LEAST_WINDOWS} to 0.5"
            )
        if not 0 <= self.max_unscored_share < 1:
            raise ConfigurationError(
                f"max_unscored_share is {self.max_unscored_share}; it must be at least 0 and below 1"
            )
        if self.min_rows < 1:
            raise ConfigurationError(f"min_rows is {self.min_rows}; it must be at least 1")
        self._check_method("numeric_method", self.numeric_method, "numeric")
        self._check_method("categorical_method", self.categorical_method, "categorical")
        for column, method in self.methods.items():
            self._check_method(f"methods.{column}", method, *get_args(ColumnKind))

    @staticmethod
    def _check_method(key: str, method: str, *kinds: ColumnKind) -> None:
        allowed = [name for name, known in METHODS.items() if set(kinds) & set(known.kinds)]
        if method not in allowed:
            raise ConfigurationError(f"{key} is {method!r}; allowed are {', '.join(allowed)}")

    @property
    def test_alpha(self) -> float:
        """The part of `alpha` that the columns, the joint test and the scores may each spend (Bonferroni)."""
        return self.alpha / TESTS

    @property
    def score_alpha(self) -> float:
        """The part of it that each test of the scores may spend: distribution, alerts, stream."""
        return self.test_alpha / SCORE_TESTS

    def least_distance(self, kind: ColumnKind) -> float:
        """Return the floor of a column's threshold: a smaller change is of no concern, however certain."""
        return self.numeric_threshold if kind == "numeric" else self.categorical_threshold

    def methods_of(self, schema: FeatureSchema) -> dict[str, str]:
        """Return each feature's method, in the schema's order.

        Raises:
            ConfigurationError: A method is set for a column that does not exist or is of another kind.
        """
        if unknown := sorted(set(self.methods) - set(schema.names())):
            raise ConfigurationError(
                f"methods names {', '.join(unknown)}, which the champion does not know",
                hint=f"its features are {', '.join(schema.names())}",
            )
        for column in schema.features:
            if column.name in self.methods:
                self._check_method(f"methods.{column.name}", self.methods[column.name], column.kind)
        by_kind = {"numeric": self.numeric_method, "categorical": self.categorical_method}
        return {
            column.name: self.methods.get(column.name, by_kind[column.kind]) for column in schema.features
        }


def drift_verdict(
    scores: Mapping[str, float | None],
    schema: FeatureSchema,
    thresholds: Mapping[str, float],
    *,
    rows: int,
    policy: DriftPolicy,
) -> DriftVerdict:
    """Judge one window by its columns' distances from the reference.

    Args:
        scores: Distance per feature; None, NaN or absent means unscored.
        schema: The champion's schema.
        thresholds: Calibrated threshold per feature; one that is not a positive number unscores its feature.
        rows: Rows of the window before any sampling.
        policy: The bounds.

    Returns:
        STABLE or DRIFTED only when enough rows and columns could be judged, INCONCLUSIVE otherwise.
    """
    columns = tuple(
        _column_drift(name, method, scores.get(name), thresholds.get(name))
        for name, method in policy.methods_of(schema).items()
    )
    scored = [column for column in columns if column.score is not None]
    drifted = [column for column in scored if column.drifted]
    share = len(drifted) / len(scored) if scored else None
    needed = max(1, math.ceil(policy.drift_share * len(scored)))
    unscored = len(columns) - len(scored)
    if not rows >= policy.min_rows:
        status = DriftStatus.INCONCLUSIVE
        reason = f"the window has {rows} rows; a drift verdict needs {policy.min_rows}"
    elif share is None or not unscored <= policy.max_unscored_share * len(columns):
        status = DriftStatus.INCONCLUSIVE
        names = ", ".join([item.column for item in columns if item.score is None][:SHOWN_COLUMNS])
        reason = (
            f"{unscored} of {len(columns)} columns could not be scored (up to "
            f"{policy.max_unscored_share:.0%} may be): {names}"
        )
    else:
        status = DriftStatus.DRIFTED if len(drifted) >= needed else DriftStatus.STABLE
        reason = (
            f"{len(drifted)} of {len(scored)} scored columns ({share:.2f}) reach their thresholds on "
            f"{rows} rows; a window drifts from {needed} on; {_furthest(scored)}"
        )
    return DriftVerdict(status=status, share=share, reason=reason, columns=columns)


def calibrate_thresholds(  # noqa: PLR0913 - two sides, what they are, and how they are compared
    reference: pd.DataFrame,
    schema: FeatureSchema,
    *,
    rows: int,
    policy: DriftPolicy,
    seed: int,
    alpha: float | None = None,
) -> dict[str, float]:
    """Set each column's threshold for windows of `rows` rows by resampling the champion's reference.

    Windows are drawn from what the reference leaves open about its source: shares from their Dirichlet
    posterior (Rubin, The Bayesian bootstrap, Annals of Statistics 9, 1981), rows from the shares. So their
    distances carry the noise of both samples. A column's excess is its distance above its median, over
    the distance from there to its 99th percentile, and one bound on the excess serves all columns: the one
    that the largest excess of a window keeps in 1 - alpha of the windows. So the chance that any column of an
    unchanged window is called drifted is alpha, however many there are: the max-T of Westfall and Young
    (Resampling-Based Multiple Testing, 1993). Columns are drawn independently of each other, which can
    only raise the largest excess of columns that rise together. No tail is extrapolated. Excesses below
    the policy's floor cannot alarm and do not raise the bound.

    Args:
        reference: The champion's reference (rows, columns); at most `ROW_CAP` of its rows are used.
        schema: The champion's schema.
        rows: Rows of the window to be judged.
        policy: Supplies methods and floors.
        seed: Makes the thresholds reproducible.
        alpha: Chance of a false alarm over all columns; the policy's for its columns by default.

    Returns:
        A threshold of at least the policy's floor for every feature.

    Raises:
        InvalidArtifactError: The reference has no rows.
        InvalidWindowError: The reference lacks a feature or holds one of another kind.
        ConfigurationError: A method is set for a column that does not exist or is of another kind.
    """
    clean = clean_frame(capped_sample(reference, seed=seed), schema)
    if not len(clean):
        raise InvalidArtifactError(
            "the champion's reference has no rows", hint="Train a model from windows that have rows."
        )
    methods = {name: METHODS[method] for name, method in policy.methods_of(schema).items()}
    cells = [cells_of(clean[column.name], column.kind, methods[column.name]) for column in schema.features]
    budget = CELL_BUDGET // sum(len(column.values) for column in cells)
    alpha = policy.test_alpha if alpha is None else alpha
    most = max(WINDOWS, math.ceil(BEYOND / alpha))
    draws, window = int(np.clip(budget, LEAST_WINDOWS, most)), max(1, min(rows, ROW_CAP))
    generator = np.random.default_rng(seed)
    scores = np.zeros((len(cells), draws))
    for place, (method, column) in enumerate(zip(methods.values(), cells, strict=True)):
        if len(column.values):
            drawn = column.windows(window, draws, generator)
            scores[place] = method.distance(column.values, column.shares, drawn)
    floors = np.array([policy.least_distance(column.kind) for column in schema.features])
    thresholds = np.maximum(floors, _joint_bounds(scores, floors, alpha))
    return dict(zip(schema.names(), thresholds.tolist(), strict=True))


def _joint_bounds(scores: FloatArray, floors: FloatArray, alpha: float) -> FloatArray:
    """Return bounds (columns,) that no column reaches in 1 - alpha of the drawn windows."""
    middle = np.median(scores, axis=1)
    spread = np.quantile(scores, 0.99, axis=1) - middle
    spread[spread == 0] = np.finfo(float).tiny
    excess = np.where(scores >= floors[:, None], (scores - middle[:, None]) / spread[:, None], -np.inf)
    bound = np.quantile(excess.max(axis=0), 1 - alpha, method="higher")
    if not np.isfinite(bound):
        return floors
    bounds: FloatArray = np.nextafter(middle + float(bound) * spread, np.inf)
    return bounds


def _column_drift(name: str, method: str, score: float | None, threshold: float | None) -> ColumnDrift:
    judged = score is not None and not np.isnan(score) and threshold is not None and threshold > 0
    return ColumnDrift(
        column=name,
        method=method,
        score=float(score) if judged and score is not None else None,
        threshold=float("nan") if threshold is None else threshold,
    )


def _furthest(scored: list[ColumnDrift]) -> str:
    ranked = sorted(scored, key=lambda item: (item.score or 0.0) / item.threshold, reverse=True)
    shown = ", ".join(
        f"{item.column} {item.score:.3g} ({item.threshold:.3g})" for item in ranked[:SHOWN_COLUMNS]
    )
    return f"furthest (threshold): {shown}"
