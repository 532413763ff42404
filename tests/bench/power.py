"""The smallest change that is found in 95 % of windows, by size of the window and kind of change.

Eight numeric columns (two pairs correlated by 0.8, one skewed, one with missing values) and two categorical
ones are drawn anew for every window. A change is found when the window is DRIFTED, or its data contract is
violated, which is where missing values belong. Peers are Evidently with its defaults (any column) and one
Kolmogorov-Smirnov or chi-squared test a column with Bonferroni's correction at 1 %. A peer that calls more
than 5 % of the unchanged windows finds nothing in particular: its figure is left out, and its false alarms
are printed.

NannyML 0.13.1 does not install beside the pins (its s3fs wants an older multidict). whylogs 1.6.4 does, but
the extra that compares its profiles wants a notebook's packages too; it is not run.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from monitoring.drift import DriftPolicy
from monitoring.inspection import Terms
from monitoring.profile import profile_frame
from monitoring.quality import check_quality
from monitoring.reference import ChampionReference
from monitoring.score_drift import summary
from monitoring.verdicts import DriftStatus
from monitoring.window_drift import window_drift

from .champions import Score, champion
from .lines import Line, draw
from .peers import bonferroni, evidently_share

SIZES = (300, 1_000, 5_000)
WINDOWS = 20
FOUND = 0.95
HARMLESS = 0.05
REFERENCE_ROWS = 10_000
POLICY = DriftPolicy()
NOW = datetime.now(UTC)

Detect = Callable[[pd.DataFrame], bool]


def drawn(generator: np.random.Generator, rows: int, correlation: float = 0.8) -> pd.DataFrame:
    """Draw unchanged rows; `correlation` is that of the first pair."""
    normal = generator.normal(size=(rows, 8))
    for first, tie in ((0, correlation), (2, 0.8)):
        normal[:, first + 1] = tie * normal[:, first] + np.sqrt(1 - tie**2) * normal[:, first + 1]
    table = pd.DataFrame(normal, columns=[f"x{place}" for place in range(8)])
    table["x6"] = np.exp(table["x6"])
    table.loc[generator.random(rows) < 0.05, "x7"] = np.nan
    table["few"] = generator.choice(list("abcd"), size=rows, p=[0.4, 0.3, 0.2, 0.1])
    table["many"] = generator.choice([f"m{place}" for place in range(20)], size=rows)
    return table


def mean_shift(generator: np.random.Generator, rows: int, strength: float) -> pd.DataFrame:
    """Move one column by `strength` standard deviations."""
    return drawn(generator, rows).assign(x4=lambda table: table["x4"] + strength)


def scale(generator: np.random.Generator, rows: int, strength: float) -> pd.DataFrame:
    """Stretch one column by 1 + `strength`."""
    return drawn(generator, rows).assign(x4=lambda table: table["x4"] * (1 + strength))


def missing(generator: np.random.Generator, rows: int, strength: float) -> pd.DataFrame:
    """Take away a share of `strength` of one column's values."""
    table = drawn(generator, rows)
    table.loc[generator.random(rows) < strength, "x7"] = np.nan
    return table


def category(generator: np.random.Generator, rows: int, strength: float) -> pd.DataFrame:
    """Turn a share of `strength` of the rows to one category."""
    table = drawn(generator, rows)
    table.loc[generator.random(rows) < strength, "few"] = "d"
    return table


def correlation(generator: np.random.Generator, rows: int, strength: float) -> pd.DataFrame:
    """Lower the correlation of one pair by `strength`."""
    return drawn(generator, rows, correlation=0.8 - strength)


def contamination(generator: np.random.Generator, rows: int, strength: float) -> pd.DataFrame:
    """Push a share of `strength` of the rows by three standard deviations in three columns."""
    table = drawn(generator, rows)
    table.loc[generator.random(rows) < strength, ["x1", "x4", "x5"]] += 3.0
    return table


CHANGES: Mapping[str, tuple[Callable[[np.random.Generator, int, float], pd.DataFrame], tuple[float, ...]]] = {
    "mean shift (sd)": (mean_shift, (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)),
    "scale change": (scale, (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)),
    "missing share": (missing, (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)),
    "category share": (category, (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6)),
    "correlation change": (correlation, (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6)),
    "contaminated share": (contamination, (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6)),
}


def main() -> None:
    """Print every line of the benchmark `power`."""
    generator = np.random.default_rng(0)
    known, score = champion(drawn(generator, REFERENCE_ROWS), drawn(generator, REFERENCE_ROWS // 2))
    detectors: dict[str, Detect] = {
        "Floodmark": lambda window: ours(known, score, window),
        "Evidently's defaults": lambda window: evidently_share(known.rows, window) > 0,
        "Kolmogorov-Smirnov and chi-squared, Bonferroni": lambda window: bonferroni(known.rows, window),
    }
    harmless = {name: false_alarms(name, detect) for name, detect in detectors.items()}
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for change, (make, strengths) in CHANGES.items():
        for size in SIZES:
            found = {
                name: smallest(detect, make, strengths, size) if harmless[name][size] else None
                for name, detect in detectors.items()
            }
            report(change, size, found)
            if (least := found["Floodmark"]) is not None:
                x, y = curves.setdefault(change, ([], []))
                x.append(size)
                y.append(least)
    draw("power", "rows of the window", "smallest change found in 95 % of windows", curves)


def ours(known: ChampionReference, score: Score, window: pd.DataFrame) -> bool:
    """Whether the window is DRIFTED, has more alerts than usual, or violates the data contract."""
    terms = Terms(schema=known.schema, reference=profile_frame(known.rows, known.schema))
    findings = check_quality(profile_frame(window, known.schema), terms, now=NOW)
    scores = score(window)
    verdict = window_drift(window, scores, known, [summary(scores, known)], POLICY, seed=0)
    tests = {test.status for test in verdict.tests}
    return bool(findings) or DriftStatus.DRIFTED in {verdict.status, *tests}


def false_alarms(name: str, detect: Detect) -> dict[int, bool]:
    """Print the share of unchanged windows called; return the sizes at which it is small enough."""
    small = {}
    for size in SIZES:
        generator = np.random.default_rng(1)
        share = np.mean([detect(drawn(generator, size)) for _ in range(2 * WINDOWS)])
        Line(
            bench="power",
            case=f"nothing, {size} rows, {name}",
            metric="windows with an alarm",
            value=float(share),
            unit=f"share of {2 * WINDOWS}",
        ).print()
        small[size] = bool(share <= HARMLESS)
    return small


def smallest(
    detect: Detect,
    make: Callable[[np.random.Generator, int, float], pd.DataFrame],
    strengths: tuple[float, ...],
    size: int,
) -> float | None:
    """Return the smallest strength found in 95 % of windows; None when none is."""
    for strength in strengths:
        generator = np.random.default_rng(2)
        missed = 0
        for _ in range(WINDOWS):
            missed += not detect(make(generator, size, strength))
            if missed > (1 - FOUND) * WINDOWS:
                break
        else:
            return strength
    return None


def report(change: str, size: int, found: dict[str, float | None]) -> None:
    """Print the smallest change found beside each peer's."""
    least = found["Floodmark"]
    for peer, theirs in found.items():
        if peer != "Floodmark":
            Line(
                bench="power",
                case=f"{change}, {size} rows",
                metric="smallest change found in 95 % of windows",
                value=least,
                unit="see case",
                peer=peer,
                peer_value=theirs,
                ratio=theirs / least if theirs and least else None,
            ).print()
