"""What the pages of windows and of candidates share: links from Prefect, and notes of what failed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from prefect.artifacts import create_link_artifact

from monitoring.alerts import Site

MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~-])")

Subject = Literal["window", "gates"]


def link_page(subject: Subject, site: Site, name: str, *, text: str, told: str) -> None:
    """Link a stored page from the flow run that wrote it; `told` is plain text."""
    place = site.page(name)
    create_link_artifact(
        link=place if "://" in place else Path(place).absolute().as_uri(),
        link_text=text,
        key=artifact_key(subject, site.model),
        description=MARKDOWN.sub(r"\\\1", told),
    )


def artifact_key(subject: Subject, model: str) -> str:
    """Return the key of a model's pages in Prefect, which allows lower-case letters, digits and dashes."""
    return re.sub("[^a-z0-9]+", "-", f"{subject}-{model}".lower()).strip("-")


@contextmanager
def noted(notes: list[str], what: str) -> Iterator[None]:
    """Note on the page that something failed, whatever it is; it stops nothing."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told on the page and stops nothing
        notes.append(f"{what}: {error or type(error).__name__}")
