"""One pair of samples, scored by the statistics that calibration draws."""

import numpy as np
import pandas as pd

from monitoring.distances import Method, comparable
from training.types import ColumnKind


def distance(reference: pd.Series, current: pd.Series, kind: ColumnKind, method: Method) -> float:
    """Score two samples of one column that hold a value each."""
    sides = comparable(reference, current, kind, method)
    codes, values = pd.factorize(pd.concat(sides, ignore_index=True), sort=True)
    before, after = (
        np.bincount(side[side >= 0], minlength=len(values)) / (side >= 0).sum()
        for side in (codes[: len(reference)], codes[len(reference) :])
    )
    return float(method.distance(np.asarray(values), before, after[None, :])[0])
