"""`floodmark doctor`: every check of an installation, each guarded, so that one that fails hides no other."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from infra import probes
from infra.channels import WEBHOOK
from infra.ledger import Ledger
from infra.registry import Registry
from infra.settings import Settings
from infra.source import Source
from infra.stores import open_store
from monitoring import diagnosis
from monitoring.arrivals import due
from monitoring.diagnosis import Finding, fault, sound, warning
from monitoring.history import History
from monitoring.incidents import open_incidents
from training.errors import FloodmarkError

OVERRIDES = ("FLOODMARK_HOME", "FLOODMARK_STORE", "FLOODMARK_TRACKING_URI")


class Examination:
    """What several checks look at, gathered once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = datetime.now(UTC)

    @cached_property
    def history(self) -> History:
        """The ledger's; an empty one where there is no home yet."""
        store = self.settings.store_url
        if "://" not in store and not Path(store).is_dir():
            return History()
        return Ledger.of(open_store(store, self.settings.s3), self.settings.model).load()

    @cached_property
    def registry(self) -> Registry | None:
        """The registry; None where the embedded one was not made yet, which looking must not do."""
        embedded = self.settings.tracking_uri is None
        if embedded and not (self.settings.home / "mlflow.db").is_file():
            return None
        return Registry.open(self.settings.home, self.settings.model, self.settings.tracking_uri)


Check = Callable[[Examination], Iterator[Finding]]


def examine(settings: Settings, checks: dict[str, Check]) -> Iterator[Finding]:
    """Run every check; one that cannot be made is a fault."""
    examination = Examination(settings)
    for name, check in checks.items():
        try:
            yield from check(examination)
        except FloodmarkError as error:
            yield fault(name, error.message, error.hint)
        except Exception as error:  # noqa: BLE001 - what is wrong with one check must not hide the others
            told = f"it could not be looked at: {type(error).__name__}: {error}"
            yield fault(name, told, "run it again; if it stays so, this is a fault of Floodmark's")


def places(examination: Examination) -> Iterator[Finding]:
    """Tell where everything is, and what the environment overrules."""
    settings = examination.settings
    overruled = [name for name in OVERRIDES if name in os.environ]
    by = f", by {' and '.join(overruled)}" if overruled else ""
    yield sound("places", f"model {settings.model}: home {settings.home}, store {settings.store_url}{by}")
    for place in dict.fromkeys([settings.home, Path(settings.training.scratch or settings.home)]):
        yield diagnosis.space(str(place), *probes.free_space(place))


def packages(_: Examination) -> Iterator[Finding]:
    """Hold the environment's packages against the project's requirements, and Horovod against TensorFlow."""
    wrong = probes.misfits("floodmark")
    yield from (fault("packages", text, "install the environment again: `make setup`") for text in wrong)
    if not wrong:
        yield sound("packages", "all fit the requirements")
    try:
        probes.require_build()
    except FloodmarkError as error:
        yield fault(
            "horovod",
            f"ranks cannot load it: {error.message}",
            "compile it again: remove .venv, `make setup`",
        )
    else:
        yield sound("horovod", "it loads, compiled for the installed TensorFlow")


def ledger(examination: Examination) -> Iterator[Finding]:
    """Look at what the ledger says of the loop."""
    history, settings = examination.history, examination.settings
    yield diagnosis.last_step(history)
    yield diagnosis.incidents(open_incidents(history, settings.alerts.channels))
    yield diagnosis.model_age(history, settings.retraining)


def registry(examination: Examination) -> Iterator[Finding]:
    """Hold the registry against the ledger."""
    history, store = examination.history, examination.settings.store_url
    if (known := examination.registry) is None:
        aliased, versions = None, []
    else:
        aliased, versions = known.aliases().champion, known.versions()
    yield diagnosis.agreement(history, aliased, versions, store)


def windows(examination: Examination) -> Iterator[Finding]:
    """Look whether windows of the deployed source wait."""
    settings = examination.settings
    if settings.deployment.source is None:
        return
    opened = Source(store=open_store(settings.deployment.source, settings.s3), csv=settings.csv)
    waiting = [window.id for window in due(examination.history, opened.windows(), settings.reading)]
    yield diagnosis.waiting(examination.history, waiting, examination.now, timedelta(days=1))


def tracking_server(examination: Examination) -> Iterator[Finding]:
    """Ask the MLflow server for its version and time."""
    uri = examination.settings.tracking_uri
    if uri is None or not uri.startswith("http"):
        return
    version, offset = probes.http_answer(f"{uri.rstrip('/')}/version")
    yield from same_version("mlflow", version, probes.installed("mlflow"))
    if offset is not None:
        yield diagnosis.clock("the MLflow server", offset)


def channels(examination: Examination) -> Iterator[Finding]:
    """Look whether the alerts' webhook can be reached; nothing is sent."""
    settings = examination.settings.alerts
    if not settings.channels:
        yield warning("alerts", "no channel is configured: nobody is told", "[alerts] in floodmark.toml")
    if WEBHOOK not in settings.channels:
        return
    variable = settings.webhook_url_variable or ""
    if not os.environ.get(variable):
        yield fault(
            "alerts", f"the environment variable {variable} is not set", "set it to the webhook's URL"
        )
        return
    try:
        probes.require_listener(os.environ[variable])
    except FloodmarkError as error:
        yield fault("alerts", f"the webhook does not answer: {error.message}", "`floodmark alerts test`")
    else:
        yield sound("alerts", "the webhook's host answers; `floodmark alerts test` sends a message")


def same_version(name: str, theirs: str, ours: str) -> Iterator[Finding]:
    """Compare a server's version with this environment's; patches may differ."""
    told = f"the server's version of {name} is {theirs}, this environment's {ours}"
    if theirs.split(".")[:2] == ours.split(".")[:2]:
        yield sound(name, told)
    else:
        yield warning(name, told, "bring both to one version; clients may be behind servers, not ahead")


CHECKS: dict[str, Check] = {
    "places": places,
    "packages": packages,
    "ledger": ledger,
    "registry": registry,
    "windows": windows,
    "mlflow": tracking_server,
    "alerts": channels,
}
"""One line a check; those of Prefect are in `flows.doctor_prefect`."""
