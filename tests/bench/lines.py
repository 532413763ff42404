"""One JSON object a line, as every benchmark prints its figures; and a drawing of them."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure

DRAWINGS = Path("build") / "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure; `ratio` above 1 means better than the peer."""

    bench: str
    case: str
    metric: str
    value: float | None
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None

    def print(self) -> None:
        """Write it to standard output."""
        sys.stdout.write(json.dumps(asdict(self)) + "\n")
        sys.stdout.flush()


def draw(
    name: str, x_label: str, y_label: str, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> None:
    """Draw curves over a logarithmic axis into `build/bench/NAME.svg`."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for label, (x, y) in curves.items():
        axes.plot(x, y, marker="o", label=label)
    axes.set(xscale="log", xlabel=x_label, ylabel=y_label, title=name)
    axes.legend(fontsize="small")
    DRAWINGS.mkdir(parents=True, exist_ok=True)
    figure.savefig(DRAWINGS / f"{name}.svg")
    sys.stderr.write(f"drawn: {DRAWINGS / name}.svg\n")
