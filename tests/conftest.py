"""Fixtures that every test room shares, and what makes a run in CI fail."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["s3_server", "sqs_server"]

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# A deadline measures the machine, not the code; examples that failed once are found again by seed.
settings.register_profile("floodmark", deadline=None, derandomize=bool(os.environ.get("CI")), database=None)
settings.load_profile("floodmark")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; its absence fails in CI and skips elsewhere."""
    if not SHARED_DATA.is_dir():
        pytest.skip("real data is missing: shared/data is expected beside the checkout")
    return SHARED_DATA


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; its absence fails in CI and skips elsewhere."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


LONGEST = (
    "test_loop_nsl_kdd",
    "test_several_hosts",
    "test_work_pool",
    "test_loop_s3",
    "test_postgresql",
    "test_training_two_ranks",
    "test_demo",
    "test_mlflow_ui",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest modules, so that no core waits for one of them at the end."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONGEST)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a skipped test fail a run in CI, where everything that a test needs must be there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
