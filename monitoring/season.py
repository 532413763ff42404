"""Season: a weekend is to be compared with weekends, and a night with nights."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.frames import utc_times
from monitoring.verdicts import DriftStatus, DriftVerdict

Season = Literal["none", "hour", "weekday"]

LEAST_ROWS = 200
"""Rows of the reference in the window's season, below which nothing is compared with them."""


def matched_places(
    reference: pd.DataFrame, window: pd.DataFrame, time_column: str | None, season: Season, *, seed: int
) -> npt.NDArray[np.intp]:
    """Return places of the reference's rows that together have the window's mix of seasons, in their order.

    They are drawn without replacement, as many as that mix allows: none when a season is missing, or where
    either side has no times.

    Args:
        reference: The reference's rows, with their times.
        window: The window's rows, with theirs.
        time_column: Where the times stand, if there are any.
        season: Hours or weekdays; without a season, every row of the reference is taken.
        seed: Of the draw.
    """
    if season == "none":
        return np.arange(len(reference))
    if time_column is None or time_column not in reference or time_column not in window:
        return np.empty(0, dtype=np.intp)
    shares = _seasons(window[time_column], season).value_counts(normalize=True)
    seasons = _seasons(reference[time_column].reset_index(drop=True), season)
    present = seasons.value_counts().reindex(shares.index, fill_value=0)
    drawn = int((present / shares).min()) if len(shares) else 0
    places = [
        group.sample(n=int(drawn * shares[name]), random_state=seed).index.to_numpy()
        for name, group in seasons.groupby(seasons)
        if name in shares.index
    ]
    return np.sort(np.concatenate(places)) if places else np.empty(0, dtype=np.intp)


def _seasons(times: pd.Series, season: Season) -> pd.Series:
    """Return the hour (0 to 23) or the weekday (0 is Monday) in UTC; rows without a time drop out."""
    present = utc_times(times).dt
    seasons: pd.Series = (present.hour if season == "hour" else present.weekday).dropna()
    return seasons


def unmatched(season: Season) -> DriftVerdict:
    """Return the verdict on a window of whose season the reference holds too little."""
    return DriftVerdict(
        status=DriftStatus.INCONCLUSIVE,
        share=None,
        reason=f"the reference holds fewer than {LEAST_ROWS} rows of this window's {season}s (UTC)",
    )
