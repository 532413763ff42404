"""Event times of a window, from one pass in bounded memory: their span, their gaps and their UTC offsets."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from monitoring.frames import described, value_kind

Microseconds = npt.NDArray[np.int64]

GAP_CAP = 64
"""Gaps that are remembered: of rows out of order in many batches, a gap may be reported too small."""

OFFSET_CAP = 8
MICROSECONDS_OF_DAY = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING, _END = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """What the ledger keeps of a window's event times; the gap is the largest between successive ones."""

    earliest: datetime
    latest: datetime
    largest_gap_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeProfile:
    """Facts about a time column; `held` describes what is unreadable in it, `times` the rest."""

    unreadable: int = 0
    held: str = ""
    offsets: tuple[str, ...] = ()
    times: EventTimes | None = None
    gap_from: datetime | None = None


@dataclass(slots=True)
class TimeProfiler:
    """Gathers the facts about one time column, batch by batch.

    A gap of the whole is a gap of every batch, so the gaps of all rows are the intersections of the
    batches' gaps, the open ends before the first and after the last row among them.
    """

    unreadable: int = 0
    held: str = ""
    offsets: set[str] = field(default_factory=set)
    starts: Microseconds = field(default_factory=lambda: np.array([_BEGINNING]))
    ends: Microseconds = field(default_factory=lambda: np.array([_END]))

    def add(self, values: pd.Series) -> None:
        """Take more rows of the column (rows,)."""
        if value_kind(values) == "categorical" and len(self.offsets) < OFFSET_CAP:
            self.offsets |= set(_offsets(values))
        parsed = parsed_times(values)
        unread = parsed.isna()
        if unread.any():
            self.held = self.held or described(values[unread])
            self.unreadable += int(unread.sum())
        times = np.sort(microseconds(parsed[~unread]))
        starts, ends = _widest(np.append(_BEGINNING, times), np.append(times, _END))
        starts = np.maximum(starts[:, None], self.starts).ravel()
        ends = np.minimum(ends[:, None], self.ends).ravel()
        self.starts, self.ends = _widest(starts[starts < ends], ends[starts < ends])

    def finish(self) -> TimeProfile:
        """Return the facts about all rows taken."""
        times, gap_from = None, None
        inner = (self.starts > _BEGINNING) & (self.ends < _END)
        if len(self.starts) > 1 or self.ends[0] < _END:
            gaps = np.append(0, (self.ends - self.starts)[inner])
            widest = int(gaps.argmax())
            gap_from = moment(np.append(0, self.starts[inner])[widest]) if widest else None
            times = EventTimes(
                earliest=moment(self.ends[self.starts == _BEGINNING][0]),
                latest=moment(self.starts[self.ends == _END][0]),
                largest_gap_seconds=float(gaps[widest]) / 1e6,
            )
        return TimeProfile(
            unreadable=self.unreadable,
            held=self.held,
            offsets=tuple(sorted(self.offsets)),
            times=times,
            gap_from=gap_from,
        )


def parsed_times(values: pd.Series) -> pd.Series:
    """Read event times in UTC, NaT where unreadable. Numbers are: nothing says what unit they count."""
    kind = value_kind(values)
    if kind not in {"timestamps", "categorical"}:
        return pd.Series(pd.NaT, index=values.index, dtype="datetime64[us, UTC]")
    if kind == "categorical":
        values = values.astype(object)
    return pd.to_datetime(values, format="ISO8601", errors="coerce", utc=True)


def microseconds(times: pd.Series) -> Microseconds:
    """Return readable times as microseconds since 1970 (rows,)."""
    since_epoch: Microseconds = times.dt.as_unit("us").astype("int64").to_numpy()
    return since_epoch


def rows_per_day(runs: Iterable[pd.Series]) -> float | None:
    """Return the pace of rows, given their times in UTC by stretches (rows,) without a pause between windows.

    The rows after a stretch's first instant, over its span: of evenly spaced rows, and of snapshots whose
    rows share an instant, that is exact. NaT is left out. None where no stretch has a span.
    """
    stretches = [microseconds(times.dropna()) for times in runs]
    spans = [int(np.ptp(stretch)) if stretch.size else 0 for stretch in stretches]
    later = sum(
        int((stretch > stretch.min()).sum()) for stretch, span in zip(stretches, spans, strict=True) if span
    )
    return later * MICROSECONDS_OF_DAY / sum(spans) if any(spans) else None


def moment(since_epoch: int | np.int64) -> datetime:
    """Return a time given in microseconds since 1970."""
    return EPOCH + timedelta(microseconds=int(since_epoch))


def _widest(starts: Microseconds, ends: Microseconds) -> tuple[Microseconds, Microseconds]:
    """Keep the widest gaps, and the open ones at both ends in any case."""
    if len(starts) <= GAP_CAP:
        return starts, ends
    widths = ends.astype(np.float64) - starts.astype(np.float64)
    kept = np.argpartition(widths, -GAP_CAP)[-GAP_CAP:]
    return starts[kept], ends[kept]


def _offsets(texts: pd.Series) -> list[str]:
    """Name the UTC offsets that times in text are written in; "none" stands for a time without any."""
    present = texts.dropna().astype(object).str
    ended = present.extract(r"[T ].*(Z|[+-]\d{2}:?\d{2})$", expand=False).fillna("none").unique()
    return ["+00:00" if text == "Z" else text for text in ended]
