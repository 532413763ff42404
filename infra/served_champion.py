"""The version that serves: one immutable object, and the thread that exchanges it when the alias moves."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from infra.registry import Registry
from training import artifact
from training.errors import ConfigurationError, FloodmarkError, InvalidArtifactError
from training.evaluate import score_difference
from training.gate_evidence import GateLimits
from training.scorer import Scorer
from training.types import TrainingRequest

RETRY_SECONDS = 5.0
"""After it, a version that could not be loaded is tried again."""
SILENCE_SECONDS = 5.0
"""Beyond a few polls: how long a registry may leave a question unanswered before that is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A version, loaded and found to score as where it was trained."""

    version: str
    scorer: Scorer
    request: TrainingRequest
    since: datetime

    @classmethod
    def load(cls, version: str, folder: Path) -> "Served":
        """Load the sealed artifact in `folder`; its check rows warm it up.

        Raises:
            InvalidArtifactError: It is not complete and unchanged, or does not reproduce its stored scores.
        """
        scorer = Scorer.load(folder, threads=1)  # more would fight over the cores that serve
        reproduced = scorer.score(pd.read_parquet(folder / artifact.CHECK_ROWS))
        stored = np.load(folder / artifact.CHECK_SCORES, allow_pickle=False)
        difference, bound = score_difference(stored, reproduced), GateLimits().score_tolerance
        if not difference <= bound:  # NaN is no pass
            raise InvalidArtifactError(
                f"its check rows score {difference:.3g} away from their stored scores; allowed is {bound:.3g}"
            )
        return cls(
            version=version, scorer=scorer, request=artifact.read_request(folder), since=datetime.now(UTC)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What serves, and how that stands to the alias at one moment.

    `reason` says why the alias is not followed, and is None while it is; `confirmed_at` is when the alias
    last named the version that serves, in seconds of `time.monotonic`.
    """

    served: Served | None = None
    reason: str | None = "the registry was not asked yet"
    confirmed_at: float | None = None
    load_failures: int = 0


class ChampionFollower:
    """Asks the registry for the champion, in a thread of its own, and never lets go of one that works.

    `state` is replaced as a whole, so whoever reads it once has scores and threshold of one version.
    `report` gets a line whenever something changes.
    """

    def __init__(
        self, open_registry: Callable[[], Registry], *, poll_seconds: float, report: Callable[[str], None]
    ) -> None:
        self.state = Following()
        self._open_registry, self._poll_seconds, self._report = open_registry, poll_seconds, report
        self._registry: Registry | None = None
        self._retry: tuple[str, float] | None = None
        self._stopping = threading.Event()
        # It may hang in a call to the registry, which must not keep the process from ending.
        self._thread = threading.Thread(target=self._follow, name="champion", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and give it a moment."""
        self._stopping.set()
        self._thread.join(timeout=2)

    def confirmed_seconds_ago(self) -> float | None:
        """Return the seconds since the alias last named what serves; None before it first did."""
        confirmed = self.state.confirmed_at
        return None if confirmed is None else time.monotonic() - confirmed

    def trouble(self) -> str | None:
        """Return why the alias is not followed, be it that the registry hangs; None while it is."""
        state, age = self.state, self.confirmed_seconds_ago()
        if state.reason is None and age is not None and age > 3 * self._poll_seconds + SILENCE_SECONDS:
            return f"the registry has answered nothing for {age:.0f} s"
        return state.reason

    def look(self) -> None:
        """Ask once, and exchange what serves if the alias has moved.

        Raises:
            ConfigurationError: The registry cannot be opened as it is configured.
        """
        try:
            if self._registry is None:
                self._registry = self._open_registry()
            version = self._registry.aliases().champion
        except ConfigurationError:
            if self._registry is None:
                raise
            self._keep("the registry does not know this model's aliases")
        except FloodmarkError as error:
            self._keep(f"the registry does not answer: {error.message}")
        else:
            self._turn_to(version, self._registry)

    def _follow(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on and the champion serves
                self._keep(f"the registry cannot be asked: {type(error).__name__}: {error}")

    def _turn_to(self, version: str | None, registry: Registry) -> None:
        served = self.state.served
        if version is None:
            self._keep("the registry has no champion")
        elif served is not None and served.version == version:
            self._confirm(served)
        elif self._retry is None or self._retry[0] != version or time.monotonic() >= self._retry[1]:
            try:
                loaded = Served.load(version, registry.artifact_folder(version))
            except Exception as error:  # noqa: BLE001 - a foreign or broken model may fail in any way
                self._retry = (version, time.monotonic() + RETRY_SECONDS)
                said = (
                    error.message if isinstance(error, FloodmarkError) else f"{type(error).__name__}: {error}"
                )
                failures = self.state.load_failures + 1
                self._keep(f"version {version} cannot be loaded: {said}", load_failures=failures)
            else:
                self._retry = None
                self._confirm(loaded)

    def _confirm(self, served: Served) -> None:
        before = self.state
        self.state = replace(before, served=served, reason=None, confirmed_at=time.monotonic())
        if before.served is not served:
            self._report(f"version {served.version} serves, threshold {served.scorer.threshold.value:.6g}")
        elif before.reason is not None:
            self._report(f"the alias is followed again: version {served.version} serves")

    def _keep(self, reason: str, load_failures: int | None = None) -> None:
        before = self.state
        failures = before.load_failures if load_failures is None else load_failures
        self.state = replace(before, reason=reason, load_failures=failures)
        if before.reason != reason:
            kept = f"version {before.served.version} keeps serving" if before.served else "nothing serves"
            self._report(f"{reason}; {kept}")
