"""Configuration: `floodmark.toml`, overruled by `FLOODMARK_…` variables, overruled by the command line.

Unknown keys are errors, in the file and in the environment.
No credential is a setting: boto3 and MLflow find theirs by their own standard ways.
"""

import dataclasses
import hashlib
import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from infra.channels import AlertSettings
from infra.contract_file import read_contract
from infra.deployment_settings import DeploymentSettings
from infra.incoming_settings import IncomingSettings
from infra.metrics_settings import MetricsSettings
from infra.s3_store import S3Settings
from infra.service_settings import ServiceSettings
from infra.tables import CsvFormat
from infra.training_settings import TrainingSettings
from monitoring.contract import Contract, QualityLimits
from monitoring.drift import DriftPolicy
from monitoring.promotion_policy import PromotionPolicy
from monitoring.retraining import RetrainingPolicy
from training.calibrators import ThresholdSpec
from training.detectors import check_options, detector
from training.errors import ConfigurationError
from training.gate_evidence import GateLimits
from training.supervision import Supervision
from training.types import DetectorSpec

PREFIX = "FLOODMARK_"
DEFAULT_FILE = Path("floodmark.toml")
MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


def _known_keys(section: type[Any]) -> BeforeValidator:
    """Refuse keys that a section's dataclass does not have; pydantic alone would drop them."""
    known = {item.name for item in dataclasses.fields(section)}

    def check(value: object) -> object:
        if isinstance(value, dict) and (unknown := sorted(set(value) - known)):
            raise ValueError(f"unknown key {', '.join(unknown)}; allowed are {', '.join(sorted(known))}")
        return value

    return BeforeValidator(check)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _without_password(uri: str | None) -> str | None:
    """Settings are shown as parameters of flow runs, so nothing secret may be among them."""
    if uri is not None and ("@" in urlsplit(uri).netloc or urlsplit(uri).query):
        raise ValueError("credentials in it would be shown; use MLFLOW_TRACKING_USERNAME and _PASSWORD")
    return uri


class Settings(BaseSettings):
    """Everything that can be configured, with the embedded defaults."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, toml_file=DEFAULT_FILE
    )

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        Path(".floodmark"), validate_default=True, description="Everything that the embedded default writes"
    )
    store: str | None = Field(
        None, description="Where ledger and scores live: a folder or s3://…; home by default"
    )
    model: str = Field("floodmark", pattern=MODEL_NAME, description="Registered model's name")
    tracking_uri: Annotated[str | None, AfterValidator(_without_password)] = Field(
        None, description="MLflow tracking server; SQLite under home by default"
    )
    time_column: str | None = None
    label_column: str | None = None
    entity_column: str | None = Field(None, description="Whose row it is; sequences are of one entity")
    ignore_columns: tuple[str, ...] = ()
    lease_seconds: float = Field(
        10_800, gt=0, description="After it, a claim of another host may be taken over"
    )
    follow_seconds: float = Field(30, gt=0, description="Pause between two looks at the source with --follow")
    csv: Annotated[CsvFormat, _known_keys(CsvFormat)] = CsvFormat()
    incoming: Annotated[IncomingSettings, _known_keys(IncomingSettings)] = IncomingSettings()
    s3: Annotated[S3Settings, _known_keys(S3Settings)] = S3Settings()
    quality: Annotated[QualityLimits, _known_keys(QualityLimits)] = QualityLimits()
    drift: Annotated[DriftPolicy, _known_keys(DriftPolicy)] = DriftPolicy()
    retraining: Annotated[RetrainingPolicy, _known_keys(RetrainingPolicy)] = RetrainingPolicy()
    training: Annotated[TrainingSettings, _known_keys(TrainingSettings)] = TrainingSettings()
    detector: Annotated[DetectorSpec, _known_keys(DetectorSpec)] = DetectorSpec()
    supervision: Annotated[Supervision, _known_keys(Supervision)] = Supervision()
    threshold: Annotated[ThresholdSpec, _known_keys(ThresholdSpec)] = ThresholdSpec()
    gates: Annotated[GateLimits, _known_keys(GateLimits)] = GateLimits()
    promotion: Annotated[PromotionPolicy, _known_keys(PromotionPolicy)] = PromotionPolicy()
    alerts: Annotated[AlertSettings, _known_keys(AlertSettings)] = AlertSettings()
    metrics: Annotated[MetricsSettings, _known_keys(MetricsSettings)] = MetricsSettings()
    services: Annotated[ServiceSettings, _known_keys(ServiceSettings)] = ServiceSettings()
    deployment: Annotated[DeploymentSettings, _known_keys(DeploymentSettings)] = DeploymentSettings()
    _stated_contract: Contract = PrivateAttr(default_factory=Contract)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line over environment over file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        """Refuse factors that no alert rate could exceed, and too short leases."""
        target = self.threshold.target_alert_rate
        for name, factor in (
            ("training.trusted_alert_factor", self.training.trusted_alert_factor),
            ("gates.alert_rate_factor", self.gates.alert_rate_factor),
        ):
            if not factor * target < 1:
                raise ValueError(f"{name} {factor} times the target alert rate {target} must be below 1")
        if not self.lease_seconds > 2 * self.training.timeout_seconds:
            raise ValueError(
                "lease_seconds must exceed two trainings' timeout_seconds, a training and its retry"
            )
        return self

    @model_validator(mode="after")
    def _read_contract(self) -> Self:
        """Read the contract's file once: an edit holds from the next start on, for all windows alike."""
        if self.quality.contract is not None:
            self._stated_contract = read_contract(Path(self.quality.contract).expanduser())
        return self

    @property
    def stated_contract(self) -> Contract:
        """What the contract's file says; nothing without one."""
        return self._stated_contract

    def require_columns(self) -> None:
        """Refuse settings that name no column where one is needed; commands that read no window do not ask.

        Raises:
            ConfigurationError: A column is missing.
        """
        needed = {
            f"drift.season {self.drift.season!r} needs a time_column": self.drift.season != "none"
            and self.time_column is None,
            "threshold.method 'f_beta' needs a label_column": self.threshold.method == "f_beta"
            and self.label_column is None,
            "threshold.method 'alert_budget' needs a time_column, to know how many rows a day has": (
                self.threshold.method == "alert_budget" and self.time_column is None
            ),
        }
        if detector(self.detector).window_rows > 1:
            name = self.detector.name
            needed[f"detector.name {name!r} reads sequences and needs a time_column"] = (
                self.time_column is None
            )
            needed[f"supervision needs a detector of single rows, which {name!r} is not"] = (
                self.supervision.anomaly_weight > 0
            )
        if missing := [why for why, holds in needed.items() if holds]:
            raise ConfigurationError(
                "; ".join(missing), hint="name it in floodmark.toml, or with --time-column or --label-column"
            )

    @property
    def reading(self) -> str:
        """A digest of how windows are read: what was set aside is taken again when it changes."""
        columns = (self.time_column, self.label_column, self.ignore_columns, self.entity_column)
        most = self.incoming.max_window_gigabytes
        read_by = (columns, self.csv, self.quality, self.stated_contract, most)
        return hashlib.sha256(repr(read_by).encode()).hexdigest()[:16]

    @property
    def store_url(self) -> str:
        """The store's URL, home by default."""
        return self.store or str(self.home)


def load_settings(file: Path | None, overrides: dict[str, object]) -> Settings:
    """Read the configuration; `overrides` are the command line's, None meaning not given.

    Raises:
        ConfigurationError: The file is missing or unreadable, or a key or value is not allowed.
    """
    if file is not None and not file.is_file():
        raise ConfigurationError(
            f"there is no configuration file {file}", hint="name an existing file with --config"
        )
    _refuse_unknown_variables()

    class FromFile(Settings):
        model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
            **{**Settings.model_config, "toml_file": file or DEFAULT_FILE}
        )

    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        settings = FromFile(**given)  # type: ignore[arg-type] # pydantic checks them
        check_options(settings.detector, supervised=settings.supervision.anomaly_weight > 0)
    except ValidationError as error:
        raise ConfigurationError(
            _explain(error), hint=f"see {file or DEFAULT_FILE} and {PREFIX}… variables"
        ) from error
    except SettingsError as error:  # a variable that should hold JSON
        raise ConfigurationError(
            f"{error}: {error.__cause__}", hint='lists are JSON: FLOODMARK_IGNORE_COLUMNS=\'["a", "b"]\''
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{file or DEFAULT_FILE} is not valid TOML: {error}") from error
    return settings


def _refuse_unknown_variables() -> None:
    known = {name.upper() for name in Settings.model_fields}
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX).split("__")[0] not in known:
            raise ConfigurationError(
                f"unknown environment variable {variable}",
                hint=f"allowed after {PREFIX} are {', '.join(sorted(known))}, and __KEY after a section",
            )


def _explain(error: ValidationError) -> str:
    """All wrong keys together, each with the value received."""
    lines = []
    for item in error.errors(include_url=False):
        said = item["msg"].removeprefix("Value error, ")
        place = ".".join(str(part) for part in item["loc"])
        lines.append(f"{place}: {said} (got {_masked(item['input'])})" if place else said)
    return "configuration is not valid\n  " + "\n  ".join(lines)


def _masked(value: object) -> str:
    """Show a received value, but of a URI only its scheme and host: the rest may be a secret."""
    hidden = re.sub(r"://(?:[^/'\"\s]*@)?([^/?'\"\s]*)[^'\"\s]*", r"://\1…", repr(value))
    return re.sub(r"\?[^'\s]*", "…", hidden)
