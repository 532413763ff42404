"""A stand-in for a trained champion: principal components of the features, without a training."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from monitoring.reference import ChampionReference
from training.preprocessing import fit_preprocessing
from training.types import Column, FeatureSchema, Threshold

TARGET = 0.03
KEPT_VARIANCE = 0.9

Score = Callable[[pd.DataFrame], np.ndarray]


def schema_of(frame: pd.DataFrame) -> FeatureSchema:
    """Take numbers for numeric features and everything else for categorical ones."""
    return FeatureSchema(
        features=tuple(
            Column(
                name=str(name),
                kind="numeric" if pd.api.types.is_numeric_dtype(frame[name]) else "categorical",
            )
            for name in frame.columns
        )
    )


def champion(rows: pd.DataFrame, held_out: pd.DataFrame) -> tuple[ChampionReference, Score]:
    """Fit a linear autoencoder on half of `rows`; return it as a reference, and its anomaly score.

    As in a real training, half of `rows` calibrates and stands among the held-out rows too.
    """
    schema = schema_of(rows)
    trained = rows.iloc[::2]
    encode = fit_preprocessing(schema, trained, lambda array: array).transform
    features = encode(trained).astype(np.float64)
    centre = features.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(features - centre, rowvar=False).reshape(len(centre), -1))
    share = np.cumsum(variances[::-1]) / variances.sum()
    kept = directions[:, ::-1][:, : int(np.searchsorted(share, KEPT_VARIANCE)) + 1]

    def score(frame: pd.DataFrame) -> np.ndarray:
        centred = encode(frame) - centre
        residual: np.ndarray = ((centred - centred @ kept @ kept.T) ** 2).mean(axis=1)
        return residual

    held_out = pd.concat([rows.iloc[1::2], held_out], ignore_index=True)
    scores = score(held_out)
    threshold = Threshold(
        value=float(np.quantile(scores, 1 - TARGET)),
        method="quantile",
        target_alert_rate=TARGET,
        calibration_rows=len(scores),
    )
    reference = ChampionReference(
        schema=schema, rows=rows, held_out=held_out, scores=scores, threshold=threshold, encode=encode
    )
    return reference, score
