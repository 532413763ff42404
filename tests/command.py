"""Runs the command line as a user would: in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLOODMARK = Path(sys.executable).parent / "floodmark"
TIMEOUT_SECONDS = 600


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without anything that would configure Floodmark, Prefect, MLflow or AWS."""
    own = ("FLOODMARK_", "PREFECT_", "MLFLOW_", "AWS_")
    return {key: value for key, value in os.environ.items() if not key.startswith(own)} | dict(extra or {})


def floodmark(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `floodmark ARGUMENTS` to its end."""
    return subprocess.run(
        [FLOODMARK, *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def status(home: Path, env: Mapping[str, str] | None = None, *extra: str) -> dict[str, Any]:
    """`floodmark status --json` of a home."""
    done = floodmark("status", "--json", "--home", home, *extra, cwd=home.parent, env=env)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed
