"""`floodmark backtest`: past windows under one or more policies. It reads, and writes nothing."""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pandas as pd

from infra.ledger import Ledger
from infra.settings import Settings, load_settings
from infra.source import Source
from infra.stores import open_store
from monitoring.backtest import BacktestPolicy, Reading, References, Replay
from monitoring.backtest_result import BacktestResult, change_place, change_time, result_of
from monitoring.repeated import content_digest
from monitoring.schema import text_columns
from training.errors import ConfigurationError, InvalidWindowError
from training.types import Window

SECTIONS = ("drift", "retraining", "threshold")
ALTERNATIVES = ((1, 1), (2, 3), (3, 5))
"""k of n that the current policy is held against where no other is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """What was replayed: the window of the change, one result a policy, and what the figures leave out."""

    policies: tuple[BacktestPolicy, ...]
    results: tuple[BacktestResult, ...]
    changed_at: str | None
    notes: tuple[str, ...]


def read_policies(
    files: Sequence[Path], config: Path | None, overrides: dict[str, object]
) -> tuple[Settings, tuple[BacktestPolicy, ...]]:
    """Return the current settings, and the policies to compare, the current one first.

    A file's keys replace those of the current configuration. Without any file, the alternatives are the
    current policy with other k of n.

    Raises:
        ConfigurationError: A file is missing, unreadable, of unknown sections or values, or named twice.
    """
    settings = load_settings(config, overrides)
    current = _policy("current", settings)
    named = [_stated(file, config, overrides) for file in files] or [
        replace(current, name=f"{k} of {n}", retraining=replace(current.retraining, drifted=k, of=n))
        for k, n in ALTERNATIVES
        if (k, n) != (current.retraining.drifted, current.retraining.of)
    ]
    names = ["current", *(policy.name for policy in named)]
    if len(set(names)) < len(names):
        raise ConfigurationError(
            f"the policies are named {', '.join(names)}, by their files; each needs a name of its own",
            hint="rename a file; 'current' is the configuration itself",
        )
    return settings, (current, *named)


def _stated(file: Path, config: Path | None, overrides: dict[str, object]) -> BacktestPolicy:
    sections = _sections(file)
    try:
        return _policy(file.stem, load_settings(config, {**overrides, **sections}))
    except ConfigurationError as error:
        raise ConfigurationError(f"the policy {file}: {error.message}", hint=f"mend {file}") from error


def _policy(name: str, settings: Settings) -> BacktestPolicy:
    return BacktestPolicy(name=name, drift=settings.drift, retraining=settings.retraining)


def _sections(file: Path) -> dict[str, object]:
    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the policy {file} cannot be read: {error}", hint="name an existing TOML file with --policy"
        ) from error
    if not sections or not set(sections) <= set(SECTIONS):
        found = ", ".join(sorted(sections)) or "nothing"
        raise ConfigurationError(
            f"the policy {file} holds {found}", hint=f"allowed are the sections {', '.join(SECTIONS)}"
        )
    return sections


def backtest(
    settings: Settings,
    policies: Sequence[BacktestPolicy],
    source: Source,
    *,
    changed_at: str | None,
    progress: Callable[[list[Window]], Iterable[Window]] = list,
) -> Backtest:
    """Replay every window of a source, oldest first, each read once for all policies.

    Raises:
        ConfigurationError: The source has no windows, or `changed_at` names none of them.
        RetryableError: An object changed while it was read.
    """
    windows = source.windows()
    if changed_at is not None and changed_at not in {window.id for window in windows}:
        change_time(changed_at)
        if settings.time_column is None:
            raise ConfigurationError(
                f"--changed-at {changed_at} is no window of the source, and no time column is known",
                hint="give --time-column NAME, or name a window",
            )
    by_id = {window.id: window for window in windows}

    def read(window: Window) -> pd.DataFrame:
        texts = text_columns(replays[0].schema, settings.time_column, settings.entity_column)
        return source.read(window, texts)

    references = References(lambda name: read(by_id[name]), settings.training.seed)
    reading = Reading(
        time_column=settings.time_column,
        label_column=settings.label_column,
        ignore_columns=settings.ignore_columns,
        entity_column=settings.entity_column,
        quality=settings.quality,
        seed=settings.training.seed,
    )
    replays = [Replay(policy, reading, references) for policy in policies]
    for window in progress(windows):
        try:
            frame = read(window)
        except InvalidWindowError as error:
            for replay in replays:
                replay.set_aside(window, str(error))
            continue
        digest = content_digest(frame)
        for replay in replays:
            replay.take(window, frame, digest)
    change = change_place(changed_at, replays[0].history.windows) if changed_at is not None else None
    seconds = past_seconds(settings)
    results = [
        result_of(
            policy.name,
            replay.history,
            change=change,
            seconds_each=median(seconds) if seconds else None,
        )
        for policy, replay in zip(policies, replays, strict=True)
    ]
    return Backtest(
        policies=tuple(policies),
        results=tuple(results),
        changed_at=None if change is None else windows[change].id,
        notes=_notes(settings, seconds),
    )


def past_seconds(settings: Settings) -> list[float]:
    """Return the seconds of the trainings in this model's ledger; none where there is no ledger yet."""
    if "://" not in settings.store_url and not Path(settings.store_url).exists():
        return []
    history = Ledger.of(open_store(settings.store_url, settings.s3), settings.model).load()
    return [training.seconds for training in history.trainings if training.outcome == "registered"]


def _notes(settings: Settings, seconds: list[float]) -> tuple[str, ...]:
    notes = [
        "no model is trained: after a decision, the reference is what its training would have stored",
        "every candidate passes for promoted",
        "scores, alerts, tests that need a model, and mutes are not replayed",
    ]
    if seconds:
        notes.append(f"a training takes {median(seconds):.1f} s, the median of {len(seconds)} in the ledger")
    else:
        notes.append("no training is in the ledger yet, so its cost is told in rows only")
    if settings.time_column is None:
        notes.append("without a time column, each window counts as a day of its own for daily_trainings")
    return tuple(notes)
