"""MLflow's store: where it is, how an embedded one is made, and what its errors mean."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote, urlsplit

import infra.model_package  # noqa: F401 - it sets what MLflow reads when it is imported
from infra.passwords import without_password
from training.errors import ConfigurationError, RetryableError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of type hints of its own
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

MISSING = "RESOURCE_DOES_NOT_EXIST"
EXISTS = "RESOURCE_ALREADY_EXISTS"
INVALID = "INVALID_PARAMETER_VALUE"
STORES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")


def store_address(home: Path, tracking_uri: str | None) -> str:
    """Return the URI of the store, by default of the SQLite one under `home`, which is created.

    Raises:
        ConfigurationError: MLflow has no store of that kind, or cannot use the folder.
    """
    if "%" in str(home):
        raise ConfigurationError(
            f"MLflow does not find models again under {home}",
            hint="name a folder without a percent sign in its path with --home",
        )
    if tracking_uri is None:
        _create_database(home / "mlflow.db")
        return _sqlite_uri(home / "mlflow.db")
    if urlsplit(tracking_uri).scheme.split("+")[0] not in STORES:
        raise ConfigurationError(
            f"the tracking URI is {without_password(tracking_uri)}",
            hint=f"allowed are URIs that begin with {', '.join(f'{store}:' for store in STORES)}",
        )
    return tracking_uri


@contextmanager
def tracking(uri: str, doing: str) -> Iterator[MlflowClient]:
    """Yield a client, and turn whatever the store throws into an error that says what to do.

    Raises:
        ConfigurationError: The model, version or argument does not exist or is not allowed.
        RetryableError: Anything else.
    """
    try:
        yield MlflowClient(uri, uri)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        text = without_password(f"tracking server {uri} could not {doing}: {error}")
        if getattr(error, "error_code", None) in (MISSING, INVALID):
            hint = "look at the model and its versions with `floodmark history` or in the MLflow UI"
            raise ConfigurationError(text, hint=hint) from error
        hint = "run the same command again once the tracking server answers"
        raise RetryableError(text, hint=hint) from error


@contextmanager
def tolerated(error_code: str) -> Iterator[None]:
    """Pass over MLflow's own error of this code, and of no other."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != error_code:
            raise


def require_database(uri: str) -> None:
    """Raise OSError where an SQLite file is gone: MLflow would go on with a new, empty one."""
    if uri.startswith("sqlite:///") and "?" not in uri:
        Path(unquote(uri.removeprefix("sqlite:///"))).stat()


def _sqlite_uri(path: Path) -> str:
    return f"sqlite:///{quote(str(path))}"


def _create_database(path: Path) -> None:
    """Let MLflow migrate a database aside and link it to `path`: nobody ever meets half of one.

    Raises:
        ConfigurationError: The folder cannot be written.
    """
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".mlflow-") as scratch:
            fresh = Path(scratch) / path.name
            MlflowClient(_sqlite_uri(fresh)).search_experiments(max_results=1)
            with suppress(FileExistsError):  # another process was faster
                path.hardlink_to(fresh)
    except (OSError, SQLAlchemyError) as error:
        raise ConfigurationError(
            f"the registry's database {path} cannot be created: {error}",
            hint="name a folder that can be written with --home",
        ) from error
