"""Pages that need nothing else: their templates, and numbers, shares, names and times as people read them."""

import math
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


@cache
def template(name: str) -> Template:
    """Return a template of this folder; whatever it is given is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, percent=percent, clipped=clipped, utc=utc)
    return environment.get_template(name)


def number(value: float | None) -> str:
    """Return a number as people read it, to three digits."""
    if value is None or math.isnan(value):
        return "none"
    if value == 0:
        return "0"
    if 1_000 <= abs(value) < 1e7:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(rate: float) -> str:
    """Return a share in percent; one that is not 0 is not shown as 0."""
    return "<0.1%" if 0 < rate < 0.001 else f"{rate:.1%}"  # noqa: PLR2004


def clipped(text: str, length: int) -> str:
    """Return a text, shortened in its middle if it is longer than `length`."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 1]}…{text[-tail:]}"


def utc(at: datetime) -> str:
    """Return a time to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else many}"
