"""All that ranks and their supervisor see of this environment: nothing that is not known to be needed."""

import os
from collections.abc import Iterable
from pathlib import Path

import training

HARMLESS = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    *("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH", "CUDA_VISIBLE_DEVICES"),
)
S3_ACCESS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE"),
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
)
"""For ranks that read from or write to S3 themselves, and for no other process."""


def of_supervisor() -> dict[str, str]:
    """Return the supervisor's, which starts ssh, and with it the user's agent for keys."""
    return _present((*HARMLESS, "SSH_AUTH_SOCK")) | _python()


def of_ranks(locations: Iterable[str], s3_endpoint_url: str | None = None) -> dict[str, str]:
    """Return the ranks', with access to S3, at an endpoint, only if one of the `locations` is there."""
    if not any(location.startswith("s3://") for location in locations):
        return _present(HARMLESS) | _python()
    endpoint = {"AWS_ENDPOINT_URL_S3": s3_endpoint_url} if s3_endpoint_url else {}
    return _present((*HARMLESS, *S3_ACCESS)) | endpoint | _python()


def _python() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(training.__file__).parents[1]), "PYTHONSAFEPATH": "1"}


def _present(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
