"""The composition root: from settings to the adapters that the flows act through."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import ValidationError

from infra.arrival_queue import ArrivalQueue
from infra.ledger import Ledger
from infra.object_store import ObjectStore
from infra.registry import Registry
from infra.s3_store import S3Store
from infra.settings import Settings
from infra.source import Source
from infra.stores import open_store
from monitoring.frames import as_text, clean_frame, column_count, utc_times
from monitoring.history import History
from monitoring.profile import WindowProfile, profile_frame
from monitoring.reference import ChampionReference
from monitoring.schema import text_columns, with_columns
from training import artifact
from training.errors import ConfigurationError, InvalidArtifactError, InvalidWindowError
from training.scorer import Scorer
from training.types import FeatureSchema, TrainingRequest, Window, WindowVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """A registered version, loaded: model, flood mark and reference come from one artifact."""

    version: str
    scorer: Scorer
    request: TrainingRequest
    reference: ChampionReference
    profile: WindowProfile
    calibration_scores: np.ndarray  # (calibration rows,) float64

    @property
    def schema(self) -> FeatureSchema:
        """The features that the model was trained on."""
        return self.scorer.schema


class Installation:
    """One model's adapters. Opening it starts nothing; each adapter starts when it is first used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._loaded = lru_cache(maxsize=4)(self._load)
        self._opened: dict[str, Source] = {}

    @cached_property
    def store(self) -> ObjectStore:
        """Where ledger, scores and pages live."""
        return open_store(self.settings.store_url, self.settings.s3)

    @cached_property
    def ledger(self) -> Ledger:
        """The model's ledger."""
        return Ledger.of(self.store, self.settings.model)

    @cached_property
    def registry(self) -> Registry:
        """The model's registry."""
        return Registry.open(self.settings.home, self.settings.model, self.settings.tracking_uri)

    def source(self, url: str) -> Source:
        """Open a source of windows, once: it knows what it has listed."""
        if url not in self._opened:
            store = open_store(url, self.settings.s3)
            self._opened[url] = Source(store, self.settings.csv, self.settings.incoming)
        return self._opened[url]

    def queue(self, source: str) -> ArrivalQueue | None:
        """Return the queue that is told of a source's objects, where one is configured.

        Raises:
            ConfigurationError: The source is not in S3.
        """
        url, store = self.settings.incoming.notifications_queue_url, self.source(source).store
        if url is None:
            return None
        if not isinstance(store, S3Store):
            raise ConfigurationError(
                f"incoming.notifications_queue_url is told of objects in S3, and {source} is a folder",
                hint="leave it out, or name s3://bucket/prefix as the source",
            )
        return ArrivalQueue(url, store)

    def training_folder(self, request_id: str) -> Path:
        """The local folder of one training: its rows, logs, artifact and result."""
        return self.settings.home / "state" / self.settings.model / "trainings" / request_id

    def write_scores(self, window_id: str, scores: pd.DataFrame) -> None:
        """Store the scores of one window."""
        buffer = io.BytesIO()
        scores.to_parquet(buffer)
        self.store.write(f"scores/{self.settings.model}/{window_id}.parquet", buffer.getvalue())

    def write_page(self, name: str, page: str) -> None:
        """Store an HTML page as `reports/MODEL/NAME.html`, where `monitoring.alerts.Site.page` links to."""
        self.store.write(f"reports/{self.settings.model}/{name}.html", page.encode(errors="replace"))

    def champion(self, version: str) -> Champion:
        """Return a registered version, loaded once; MLflow gives a deleted version's number to another.

        Raises:
            ConfigurationError: There is no such version.
            InvalidArtifactError: Its artifact is not what was registered.
            RetryableError: The registry does not answer.
        """
        return self._loaded(version, self.registry.artifact_folder(version))

    def foreign(self, version: str) -> str | None:
        """Say why a registered version cannot serve as one of this model; None when it can.

        Nothing that a version brings is executed: its sealed artifact is read, and a version without one is
        foreign.

        Raises:
            RetryableError: The registry does not answer.
        """
        try:
            trained_for = self.champion(version).request.model
        except (ConfigurationError, InvalidArtifactError, ValidationError) as error:
            return f"it holds no intact artifact of this model: {error}"
        if trained_for != self.settings.model:
            return f"it was trained as a version of {trained_for}"
        return None

    def _load(self, version: str, folder: Path) -> Champion:
        scorer = Scorer.load(folder)
        rows, held_out = (pd.read_parquet(folder / name) for name in (artifact.REFERENCE, artifact.HELD_OUT))
        return Champion(
            version=version,
            scorer=scorer,
            request=artifact.read_request(folder),
            reference=ChampionReference(
                schema=scorer.schema,
                rows=rows,
                held_out=held_out,
                scores=scorer.score(held_out),
                threshold=scorer.threshold,
                encode=scorer.preprocessing.transform,
            ),
            profile=profile_frame(rows, scorer.schema, seed=self.settings.training.seed),
            calibration_scores=np.load(folder / artifact.CALIBRATION_SCORES, allow_pickle=False),
        )


def known_schema(champion: Champion | None, history: History, settings: Settings) -> FeatureSchema | None:
    """Return the champion's features, or those of the first window; None before there is one."""
    schema = champion.schema if champion else history.bootstrap_schema
    if schema is None:
        return None
    return with_columns(
        schema,
        time_column=settings.time_column,
        label_column=settings.label_column,
        entity_column=settings.entity_column,
    )


def read_clean(
    source: Source, window: Window, schema: FeatureSchema, *, beside: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Read a window's known columns: numbers as float64, categories as strings or None, times in UTC.

    Of the columns `beside` the known ones, those that are there follow as strings or None.
    """
    others = set(beside) - {
        *schema.names(),
        schema.time_column,
        schema.label_column,
        schema.entity_column,
    }
    read = source.read(window, text_columns(schema, schema.time_column) | others)
    rows = clean_frame(read, schema)
    for name in others:
        if column_count(read, name) == 1:
            rows[name] = as_text(read[name])
    if schema.time_column in rows:
        rows[schema.time_column] = utc_times(rows[schema.time_column])
    return rows


def find_windows(source: Source, wanted: Iterable[WindowVersion]) -> list[Window]:
    """Find windows in a source as they were when they were taken.

    Raises:
        InvalidWindowError: A window is gone or was rewritten since.
    """
    listed = {window.id: window for window in source.windows()}
    for version in wanted:
        if version.id not in listed or listed[version.id].fingerprint != version.fingerprint:
            state = "was rewritten" if version.id in listed else "is gone from the source"
            raise InvalidWindowError(
                f"window {version.id} {state} since it was taken",
                hint="put the object back as it was and run again",
            )
    return [listed[version.id] for version in wanted]


_INSTALLATIONS: dict[str, Installation] = {}


def open_installation(settings: Settings) -> Installation:
    """Return the installation of these settings, one for each process."""
    return _INSTALLATIONS.setdefault(settings.model_dump_json(), Installation(settings))
