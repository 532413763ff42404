"""Season: a weekend is to be compared with weekends, and a night with nights."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.frames import utc_times

Season = Literal["none", "hour", "weekday"]


def matched_places(
    reference: pd.Series, window: pd.Series, season: Season, *, seed: int
) -> npt.NDArray[np.intp]:
    """Return places of the reference's rows that together have the window's mix of seasons, in their order.

    They are drawn without replacement, as many as that mix allows: none when a season is missing.

    Args:
        reference: The times of the reference's rows.
        window: The times of the window's rows.
        season: Hours or weekdays.
        seed: Of the draw.
    """
    shares = _seasons(window, season).value_counts(normalize=True)
    seasons = _seasons(reference.reset_index(drop=True), season)
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
