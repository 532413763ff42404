"""Files in a folder or objects in a bucket, through pyarrow: the ranks' way to S3.

Credentials are found by the AWS SDK inside of pyarrow, in the environment or its own files; nothing of them
passes through here. Another endpoint comes from AWS_ENDPOINT_URL.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from training.errors import ConfigurationError, RetryableError

_REFUSED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|NO_SUCH_BUCKET|Bucket '.*' not found"
)
_SHORT = re.compile(r"\d+ requested and \d+ written")
"""How NumPy says that a disk is full, without a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file or folder at `url`, a path or `s3://bucket/key`, which pyarrow knows as `path`."""

    url: str
    path: str
    filesystem: Any

    @classmethod
    def at(cls, url: str | Path) -> "Place":
        """Return the place at `url`.

        Raises:
            ConfigurationError: It is neither a path nor an address of S3.
            RetryableError: Amazon cannot be asked for the bucket's region, where none is set.
        """
        url = str(url)
        scheme, separator, rest = url.partition("://")
        if not separator:
            return cls(url=url, path=str(Path(url).absolute()), filesystem=fs.LocalFileSystem())
        if scheme != "s3" or not rest.strip("/"):
            raise ConfigurationError(
                f"{url!r} is no place of data", hint="Allowed: a path or s3://bucket/key."
            )
        return cls(url=url, path=rest.strip("/"), filesystem=_s3(rest.partition("/")[0]))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def child(self, name: str) -> "Place":
        """Return the place called `name` in this one."""
        base = self.path.rstrip("/")
        return Place(url=f"{self.url.rstrip('/')}/{name}", path=f"{base}/{name}", filesystem=self.filesystem)

    def files(self) -> list["Place"]:
        """Return this file, or those in this folder and below it, by name; none if there is nothing.

        Hidden ones, whose names begin with '.' or '_', are not among them.

        Raises:
            RetryableError: It cannot be listed just now.
            ConfigurationError: It may not be listed, or there is no such bucket.
        """
        with said_for(self.url):
            found = self.filesystem.get_file_info(self.path)
            if found.type == fs.FileType.File:
                return [self]
            listed = []
            # Not with allow_not_found, which takes a missing bucket for an empty one.
            with suppress(FileNotFoundError):
                listed = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True))
        below = [item.path.removeprefix(self.path).strip("/") for item in listed if item.is_file]
        shown = [name for name in below if not any(part[0] in "._" for part in name.split("/"))]
        return [self.child(name) for name in sorted(shown, key=_natural)]

    def open(self) -> Any:  # noqa: ANN401 - a pyarrow file
        """Open the file for reading, at any of its places."""
        return self.filesystem.open_input_file(self.path)

    def read(self) -> bytes:
        """Return the file's content.

        Raises:
            RetryableError: It cannot be read just now.
            FileNotFoundError: There is none.
        """
        with said_for(self.url), self.open() as file:
            content: bytes = file.read()
        return content

    def write(self, content: bytes) -> None:
        """Write a file that is either absent or complete, whenever this process ends.

        Raises:
            RetryableError: It cannot be written just now, or the disk is full; nothing of it is left.
        """
        if not isinstance(self.filesystem, fs.LocalFileSystem):
            with said_for(self.url), self.filesystem.open_output_stream(self.path) as stream:
                stream.write(content)
            return
        target = Path(self.path)
        partial = target.with_name(f".{target.name}.partial")
        try:
            with said_for(self.url, needed=len(content)):
                target.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(content)
                partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove a file, or a folder with all that is in it; nothing there is no error.

        On S3, an empty object that stands for the folder above may be left: pyarrow's way to keep folders.
        """
        with said_for(self.url):
            kind = self.filesystem.get_file_info(self.path).type
            if kind == fs.FileType.File:
                self.filesystem.delete_file(self.path)
            elif kind == fs.FileType.Directory:
                self.filesystem.delete_dir(self.path)


@contextmanager
def said_for(url: str, *, needed: int = 0) -> Iterator[None]:
    """Name `url` in errors of the system; `needed` bytes, where known, are about to be written there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} or _SHORT.search(str(error)):
            reason = os.strerror(error.errno) if error.errno else str(error)
            size = f", {needed / 2**20:.1f} MiB are needed" if needed else ""
            raise RetryableError(
                f"{url} cannot be written{size}: {reason}",
                hint="Nothing of it is left. Make room there, or name another place, and run it again.",
            ) from error
        refused = isinstance(error, PermissionError) or _REFUSED.search(str(error))
        kind = ConfigurationError if refused else RetryableError
        raise kind(f"{url} cannot be reached: {error}") from error


def _s3(bucket: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint.netloc:
        options = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        region = region or "us-east-1"  # which other servers than Amazon's expect
    else:
        options = {}
        with said_for(f"s3://{bucket}"):
            region = region or fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(region=region, connect_timeout=10, request_timeout=60, **options)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Order part-10 after part-9."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
