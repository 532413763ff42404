"""A temporary Prefect server for flows that run in the process of the test."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.events import flush
from infra.prefect_server import API_URL, prefect_environment


@contextmanager
def prefect_api(folder: Path) -> Iterator[str]:
    """Run a server with its database in a folder, and yield its address."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PREFECT_HOME", "set by the server, restored by this line")
        environment.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        environment.delenv(API_URL, raising=False)
        with prefect_environment(folder) as wait_for_api:
            wait_for_api()
            with temporary_settings({PREFECT_API_URL: os.environ[API_URL]}):
                yield os.environ[API_URL]
                flush()
