"""The section `[metrics]`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where the loop keeps metrics up to date: a file for node_exporter's textfile collector."""

    textfile: Path | None = None

    def __post_init__(self) -> None:
        if self.textfile is not None and self.textfile.suffix != ".prom":
            raise ValueError(f"textfile is {self.textfile}; node_exporter reads files that end in .prom")
