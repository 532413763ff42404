"""Checks of the event times, against the time of the check and the windows before."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from statistics import median

import pandas as pd

from monitoring.event_times import parsed_times
from monitoring.inspection import Breach, Inspection, shown_share


def event_times(item: Inspection) -> Iterator[Breach]:
    """Every row must have a time that can be read."""
    name, time = item.terms.schema.time_column, item.window.time
    if name is None or not item.window.rows:
        return
    if name not in item.window.names:
        yield Breach(column=name, message=f"the time column {name!r} is missing from the window")
    elif time is not None and time.unreadable:
        text = (
            f"the time column {name!r} is null or no ISO 8601 time in {time.unreadable} of "
            f"{item.window.rows} rows; it holds {time.held}"
        )
        yield Breach(column=name, message=text, observed=time.unreadable / item.window.rows, bound=0)


def time_gaps(item: Inspection) -> Iterator[Breach]:
    """No gap should be far longer than those in the windows that the champion learned from."""
    time, factor = item.window.time, item.terms.limits.gap_factor
    if time is None or time.times is None or not item.terms.past.gaps_seconds:
        return
    usual, gap = median(item.terms.past.gaps_seconds), time.times.largest_gap_seconds
    if gap > factor * usual > 0 and time.gap_from is not None:
        text = (
            f"no event for {gap:.6g} s after {time.gap_from.isoformat()}; the largest gap is {usual:.6g} s "
            "in the windows of the reference"
        )
        yield Breach(column=item.terms.schema.time_column, message=text, observed=gap, bound=factor * usual)


def late_rows(item: Inspection) -> Iterator[Breach]:
    """Report rows that are older than the end of the windows before this one.

    A window is before this one if it ends no later: so a repaired window that is taken again is not late
    as a whole, and a time in the future that an earlier window held makes no later window late.
    """
    time = item.window.time
    if time is None or time.times is None:
        return
    before = [end for end in item.terms.past.ends if end <= time.times.latest]
    if not before:
        return
    bound = max(before) - timedelta(days=item.terms.limits.late_tolerance_days)
    if time.times.earliest < bound:
        share = _share_of_times(item, lambda times: times < bound)
        text = (
            f"{shown_share(share, item)} of the rows are older than {bound.isoformat()}, from "
            f"{time.times.earliest.isoformat()} on; the windows before end {max(before).isoformat()}"
        )
        yield Breach(column=item.terms.schema.time_column, message=text, observed=share, bound=0)


def future_rows(item: Inspection) -> Iterator[Breach]:
    """No event is far ahead of the time of the check."""
    time = item.window.time
    if time is None or time.times is None:
        return
    bound = item.now + timedelta(days=item.terms.limits.future_tolerance_days)
    if time.times.latest > bound:
        share = _share_of_times(item, lambda times: times > bound)
        text = (
            f"{shown_share(share, item)} of the event times lie beyond {bound.isoformat()}, up to "
            f"{time.times.latest.isoformat()}"
        )
        yield Breach(column=item.terms.schema.time_column, message=text, observed=share, bound=0)


def mixed_offsets(item: Inspection) -> Iterator[Breach]:
    """Times in text should be written in one UTC offset: one without any may be local time."""
    time, name = item.window.time, item.terms.schema.time_column
    if time is not None and len(time.offsets) > 1:
        text = f"the times in {name!r} are written in several UTC offsets: {', '.join(time.offsets)}"
        yield Breach(column=name, message=text, observed=len(time.offsets), bound=1)


def _share_of_times(item: Inspection, beyond: Callable[[pd.Series], pd.Series]) -> float:
    """Share of the sampled rows whose time lies beyond a bound."""
    return float(beyond(parsed_times(item.window.sample[item.terms.schema.time_column])).mean())
