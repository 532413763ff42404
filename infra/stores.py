"""Which store an address means."""

import re
from pathlib import Path

from infra.local_store import LocalStore
from infra.object_store import ObjectStore
from infra.s3_store import S3Settings, S3Store
from training.errors import ConfigurationError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def open_store(url: str, s3: S3Settings) -> ObjectStore:
    """Return the store at a folder's path or at `s3://bucket/prefix`; nothing is contacted yet."""
    scheme, separator, rest = url.partition("://")
    if not separator and url.strip():
        return LocalStore(Path(url).expanduser())
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not _BUCKET.fullmatch(bucket):
        raise ConfigurationError(
            f"{url!r} is not the address of a store.", hint="Allowed: a folder's path, or s3://bucket/prefix."
        )
    return S3Store(bucket, prefix.strip("/"), s3)
