"""What windows are compared with: rows that came with the champion's training, and how it scored some."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.frames import FloatArray
from monitoring.season import LEAST_ROWS, Season, matched_places
from training.types import FeatureSchema, Threshold


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChampionReference:
    """The champion's reference; rows are as they arrived, before the contamination guard took any out.

    Attributes:
        schema: The champion's schema.
        rows: What it was trained and calibrated on: features, and the times where it has a time column.
        held_out: Likewise, rows that it was not trained on.
        scores: Its anomaly scores of `held_out` (rows,).
        threshold: Its flood mark.
        encode: Raw rows -> what its network reads, float32 (rows, width).
    """

    schema: FeatureSchema
    rows: pd.DataFrame
    held_out: pd.DataFrame
    scores: FloatArray
    threshold: Threshold
    encode: Callable[[pd.DataFrame], npt.NDArray[np.float32]]

    def in_season(self, window: pd.DataFrame, season: Season, *, seed: int) -> "ChampionReference | None":
        """Return the reference in the mix of hours or weekdays (UTC) that the window has.

        A weekend is then compared with weekends. Drawn without replacement, as many rows as that mix
        allows; None when these are less than `LEAST_ROWS`, or where either side has no times.
        """
        if season == "none":
            return self
        rows, held_out = (
            matched_places(side, window, self.schema.time_column, season, seed=seed)
            for side in (self.rows, self.held_out)
        )
        if min(len(rows), len(held_out)) < LEAST_ROWS:
            return None
        return replace(
            self,
            rows=self.rows.iloc[rows],
            held_out=self.held_out.iloc[held_out],
            scores=self.scores[held_out],
        )
