"""`floodmark check`: contract and drift of one window against the champion. It writes nothing.

A window of local Parquet files is streamed, so that its size is of no account; any other is read whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from flows.contract import champion_of
from flows.installation import Champion, Installation, known_schema
from flows.monitor import check_drift, contract_terms
from infra.local_store import LocalStore
from infra.parquet_batches import open_parquet
from infra.settings import Settings
from infra.source import Source
from infra.tables import suffix_of
from monitoring.contract import Finding
from monitoring.frames import clean_frame
from monitoring.history import History
from monitoring.profile import Profiler, WindowProfile, profile_frame
from monitoring.quality import check_quality, quarantine_reason
from monitoring.schema import text_columns
from monitoring.score_drift import summary
from monitoring.verdicts import DriftStatus, DriftVerdict
from training.errors import ConfigurationError, InvalidWindowError
from training.types import FeatureSchema, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCheck:
    """What became of a check; a window that is to be quarantined has no verdict and no alert rate."""

    window_id: str
    champion_version: str
    rows: int
    sampled: int
    findings: list[Finding]
    drift: DriftVerdict | None = None
    alert_rate: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the window is valid and certainly stable."""
        return self.drift is not None and self.drift.status is DriftStatus.STABLE


def check_window(
    installation: Installation, history: History, source: str, window_id: str | None = None
) -> WindowCheck:
    """Check a file, or a window of a folder or prefix: the newest one unless it is named.

    Raises:
        ConfigurationError: There is no champion, or the source has no windows, or none of that name.
    """
    champion = champion_of(installation, history)
    settings = installation.settings
    schema = known_schema(champion, history, settings)
    if schema is None:
        raise ConfigurationError(f"version {champion.version} has no features")
    opened, window = chosen_window(installation, source, window_id)
    try:
        profile = profile_window(opened, window, schema, seed=settings.training.seed)
    except InvalidWindowError as error:
        unreadable = Finding(check="unreadable", column=None, severity="quarantine", message=str(error))
        return WindowCheck(
            window_id=window.id, champion_version=champion.version, rows=0, sampled=0, findings=[unreadable]
        )
    terms = contract_terms(champion, schema, history, window.id, settings)
    findings = check_quality(profile, terms, now=datetime.now(UTC))
    checked = WindowCheck(
        window_id=window.id,
        champion_version=champion.version,
        rows=profile.rows,
        sampled=len(profile.sample),
        findings=findings,
    )
    if quarantine_reason(findings):
        return checked
    drift, alert_rate = judge_sample(clean_frame(profile.sample, schema), champion, history, settings)
    return replace(checked, drift=drift, alert_rate=alert_rate)


def judge_sample(
    rows: pd.DataFrame, champion: Champion, history: History, settings: Settings
) -> tuple[DriftVerdict, float]:
    """Judge a window by the sample that the drift check would draw of it, as the loop does."""
    scores = champion.scorer.score(rows)
    matched = champion.reference.in_season(rows, settings.drift.season, seed=settings.training.seed)
    stream = [*history.champion_scores(), summary(scores, matched)]
    drift = check_drift.fn(rows, scores, champion, stream, settings)
    return drift, float(np.mean(~(scores <= champion.scorer.threshold.value)))


def chosen_window(installation: Installation, source: str, window_id: str | None) -> tuple[Source, Window]:
    """Find the window to check: the file that `source` names, or the named or newest one that it holds."""
    path = Path(source).expanduser()
    if "://" not in source and suffix_of(path.name) and not path.exists():
        raise ConfigurationError(
            f"there is no file {source}", hint="name a file, a folder or s3://bucket/prefix"
        )
    if "://" in source or not path.is_file():
        opened = installation.source(source)
        return opened, named_window(opened.windows(), source, window_id)
    if (suffix := suffix_of(path.name)) is None:
        raise ConfigurationError(
            f"{source} is no .parquet, .csv or .csv.gz",
            hint="name such a file, a folder or s3://bucket/prefix",
        )
    store = LocalStore(path.parent)
    opened = Source(store=store, csv=installation.settings.csv)
    window = Window(id=path.name[: -len(suffix)], objects=(store.find(path.name),))
    return opened, named_window([window], source, window_id)


def named_window(windows: Sequence[Window], source: str, window_id: str | None) -> Window:
    """Return the window of this id, or the last one for None."""
    if window_id is None:
        return windows[-1]
    for window in windows:
        if window.id == window_id:
            return window
    held = f"it has {len(windows)}, from {windows[0].id} to {windows[-1].id}"
    raise ConfigurationError(
        f"{source} has no window {window_id!r}; {held}",
        hint="name one of them with --window, or leave it out for the newest",
    )


def profile_window(source: Source, window: Window, schema: FeatureSchema, *, seed: int) -> WindowProfile:
    """Take a window's profile, streaming local Parquet.

    Raises:
        InvalidWindowError: The window cannot be read.
    """
    names = [item.key for item in window.objects]
    if isinstance(source.store, LocalStore) and all(suffix_of(name) == ".parquet" for name in names):
        stored = open_parquet([source.store.folder / name for name in names])
        profiler = Profiler(schema, rows=stored.rows, seed=seed)
        for batch in stored.batches():
            profiler.add(batch)
        return profiler.finish()
    return profile_frame(source.read(window, text_columns(schema, schema.time_column)), schema, seed=seed)


def described_check(check: WindowCheck) -> list[str]:
    """Return what a person reads, a line each."""
    head = f"{check.window_id}  {check.rows} rows, against version {check.champion_version}"
    lines = [f"{item.severity}  {item.check}: {item.message}" for item in check.findings]
    if check.drift is None:
        return [head, *lines, "quarantine: neither scored nor judged for drift"]
    columns = check.drift.drifted_columns
    moved = f": {', '.join(columns)}" if columns else ""
    sampled = f" of {check.sampled} sampled rows" if check.sampled < check.rows else ""
    return [
        head,
        *(lines or ["no findings: the window is what the contract says"]),
        f"{check.drift.status.value}: {check.drift.reason}",
        f"{len(columns)} of {len(check.drift.columns)} columns drifted{moved}",
        f"as a whole: {', '.join(check.drift.drifted_tests) or 'no test found a change'}",
        f"alert rate {check.alert_rate:.3f}{sampled}",
    ]
