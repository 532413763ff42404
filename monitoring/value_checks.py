"""Checks of what the features hold, against what was learned or is stated of each."""

from collections.abc import Iterator

import numpy as np

from monitoring.frames import float_values
from monitoring.inspection import Breach, Inspection, shown_share

SHOWN_CATEGORIES = 5


def all_missing(item: Inspection) -> Iterator[Breach]:
    """A feature must have a value, unless it hardly ever had one."""
    for name, profile in item.sound():
        # A value that is rare in the reference is absent from most windows.
        chance = (item.contract.rules(name).missing_rate or 0.0) ** item.window.rows
        if profile.kind == "empty" and chance < item.terms.limits.constant_chance:
            text = f"the feature {name!r} has no value in {item.window.rows} rows"
            yield Breach(column=name, message=text, observed=1)


def infinite_values(item: Inspection) -> Iterator[Breach]:
    """Infinities are no numbers to score; a few may be."""
    bound = item.terms.limits.infinite_share_quarantine
    for name, profile in item.sound():
        if profile.infinite:
            share = profile.infinite / item.window.rows
            # Where every present value is infinite nothing is left to score, however few they are.
            mild = share <= bound and item.window.missing_rate(name) < 1
            text = f"the feature {name!r} is infinite in {share:.2%} of the rows; at most {bound:.0%} may be"
            yield Breach(column=name, message=text, observed=share, bound=bound, mild=mild)


def missing_rates(item: Inspection) -> Iterator[Breach]:
    """Values may be missing about as often as in the reference, and never where none may be."""
    limits = item.terms.limits
    for name, profile in item.sound():
        rules, rate = item.contract.rules(name), item.window.missing_rate(name)
        if profile.kind == "empty" or not rate > 0:  # nothing but missing values is for the checks above
            continue
        if rules.nullable is False:
            text = f"the feature {name!r} is missing in {rate:.2%} of the rows; the contract allows none"
            yield Breach(column=name, message=text, observed=rate, bound=0)
        elif (
            rules.missing_rate is not None
            and rate < 1
            and rate - rules.missing_rate > limits.missing_rise_warn
        ):
            before = rules.missing_rate
            bound = before + limits.missing_rise_quarantine
            text = (
                f"the feature {name!r} is missing in {rate:.1%} of the rows, in the reference in {before:.1%}"
            )
            mild = rate - before <= limits.missing_rise_quarantine
            yield Breach(column=name, message=text, observed=rate, bound=bound, mild=mild)


def duplicated_rows(item: Inspection) -> Iterator[Breach]:
    """Judge the share of rows that repeat an earlier one in *all* columns, time and unknown ones included.

    An ignored row number is enough to tell two measurements apart, so nothing is left out. The reference
    may hold the features alone: its share is then an upper bound of what is natural once a time is
    added, and errs towards keeping the window. It bounds nothing for a window that is longer than the
    reference and bears no time, as repetition grows with length where values are few, nor without a
    reference: only a warning.
    """
    reference, share = item.terms.reference, item.window.repeated_share
    natural = reference.repeated_share if reference is not None else 0.0
    if share > natural:
        timed = item.terms.schema.time_column is not None
        bounded = timed or (reference is not None and item.window.rows <= reference.rows)
        mild = not bounded or share - natural <= item.terms.limits.duplicate_rise_quarantine
        text = f"{share:.1%} of the rows repeat an earlier one in all columns, in the reference {natural:.1%}"
        bound = natural + item.terms.limits.duplicate_rise_quarantine
        yield Breach(column=None, message=text, observed=share, bound=bound, mild=mild)


def ranges(item: Inspection) -> Iterator[Breach]:
    """Numbers should stay within the range, but for rare excursions."""
    for name, profile in item.sound():
        bounds = item.contract.rules(name).range
        if bounds is None or profile.low is None or profile.high is None:
            continue
        low, high = bounds
        if low <= profile.low and profile.high <= high:
            continue
        numbers = float_values(item.window.sample[name])
        share = float((np.isfinite(numbers) & ((numbers < low) | (numbers > high))).mean())
        furthest = profile.high if profile.high > high else profile.low
        text = (
            f"the feature {name!r} lies outside of {low:.6g} to {high:.6g} in {shown_share(share, item)} "
            f"of the rows, as far as {furthest:.6g}"
        )
        bound, stated = item.terms.limits.range_share, item.terms.stated.rules(name).range is not None
        far = 0.0 if stated else item.terms.limits.range_far * (high / 2 - low / 2) * 2
        if share > bound or profile.low < low - far or profile.high > high + far:
            yield Breach(column=name, message=text, observed=share, bound=bound, mild=share <= bound)


def unseen_categories(item: Inspection) -> Iterator[Breach]:
    """Report categories that the contract does not know, beyond what a reference of this size misses.

    A reference does not hold every category there is: its share of categories that occur once estimates
    the chance that the next row brings a new one (Good, The population frequencies of species, Biometrika
    40, 1953). A list that stands in a file is complete.
    """
    for name, profile in item.sound():
        rules = item.contract.rules(name)
        if rules.categories is None or not profile.categories:
            continue
        known = set(rules.categories)
        unseen = {text: count for text, count in profile.categories.items() if text not in known}
        share = sum(unseen.values()) / item.window.rows
        bound = 0.0
        if item.terms.stated.rules(name).categories is None and item.terms.reference is not None:
            once = sum(count == 1 for count in item.terms.reference.columns[name].categories.values())
            bound = item.terms.limits.unseen_share + once / item.terms.reference.rows
        if share > bound:
            commonest = sorted(unseen, key=lambda text: (-unseen[text], text))[:SHOWN_CATEGORIES]
            text = (
                f"the feature {name!r} holds {len(unseen)} unseen categories in {share:.2%} of the rows: "
                + ", ".join(repr(category)[:40] for category in commonest)
            )
            yield Breach(column=name, message=text, observed=share, bound=bound)


def constant_columns(item: Inspection) -> Iterator[Breach]:
    """A feature that varies in the reference should vary."""
    for name, profile in item.sound():
        before = item.terms.reference.columns.get(name) if item.terms.reference is not None else None
        if before is None or profile.constant is None:
            continue
        present = item.window.rows - profile.missing
        # A rare event is absent from most windows: only a constant that sampling would hardly give counts.
        chance = before.top_share**present
        if chance < item.terms.limits.constant_chance:
            value = profile.constant
            shown = repr(value)[:40] if isinstance(value, str) else f"{value:.6g}"
            text = f"the feature {name!r} is {shown} in every row, and varies in the reference"
            yield Breach(column=name, message=text, observed=chance, bound=item.terms.limits.constant_chance)
