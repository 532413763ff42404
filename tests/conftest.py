"""Fixtures that every test room shares."""

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; its absence fails in CI and skips elsewhere."""
    if not SHARED_DATA.is_dir():
        reason = f"real data is missing: {SHARED_DATA.name} is expected beside the checkout"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED_DATA
