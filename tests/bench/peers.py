"""What others would say of the same windows: Evidently's defaults, and a test a column with Bonferroni."""

import numpy as np
import pandas as pd
from evidently.legacy.calculations.stattests import get_stattest
from evidently.legacy.core import ColumnType
from scipy.stats import chi2_contingency, ks_2samp

ALPHA = 0.01
DATASET_SHARE = 0.5


def evidently_share(reference: pd.DataFrame, window: pd.DataFrame) -> float:
    """Return the share of columns that Evidently calls drifted by its default method and threshold.

    A column without any value ends its report; here it counts as a column that is not called.
    """
    drifted = []
    for name in reference.columns:
        before, after = reference[name].dropna(), window[name].dropna()
        numeric = pd.api.types.is_numeric_dtype(before)
        if before.empty or after.empty:
            drifted.append(False)
            continue
        kind = ColumnType.Numerical if numeric else ColumnType.Categorical
        with np.errstate(all="ignore"):
            drifted.append(bool(get_stattest(before, after, kind, None)(before, after, kind, None).drifted))
    return float(np.mean(drifted))


def bonferroni(reference: pd.DataFrame, window: pd.DataFrame) -> bool:
    """Whether any column is drifted by Kolmogorov-Smirnov or chi-squared at ALPHA over all columns."""
    return any(_p_value(reference[name], window[name]) < ALPHA / reference.shape[1] for name in reference)


def _p_value(before: pd.Series, after: pd.Series) -> float:
    if pd.api.types.is_numeric_dtype(before):
        return float(ks_2samp(before.dropna(), after.dropna(), method="asymp").pvalue)
    counts = pd.crosstab(
        pd.concat([before, after], ignore_index=True), np.repeat([0, 1], [len(before), len(after)])
    )
    return float(chi2_contingency(counts).pvalue) if len(counts) > 1 else 1.0
