"""Objects in a folder: every write is a complete file under its final name, or nothing."""

import os
import stat
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.object_store import Listing, ObjectNotFoundError, changed_error
from training.errors import ConfigurationError, RetryableError
from training.types import ObjectVersion

_TEMPORARY = ".floodmark-tmp-"


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Objects as files under `folder`, which must exist before it is listed or read."""

    folder: Path

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self.folder)

    @property
    def objects_per_call(self) -> None:
        """A listing is a walk through the folder."""

    def list(self, prefix: str = "", *, after: str = "") -> Listing:
        """See `ObjectStore.list`; linked files and folders count as if they stood here themselves."""
        self._require_folder()
        found = []
        with self._errors("list", prefix):
            for path in _files(self._path(prefix) if prefix.strip("/") else self.folder):
                key = path.relative_to(self.folder).as_posix()
                if key <= after:
                    continue
                try:
                    key.encode()
                    status = path.stat()
                except UnicodeEncodeError as error:
                    raise ConfigurationError(
                        f"The name of {key!r} in {self.url} is not UTF-8.", hint="Rename the file."
                    ) from error
                except FileNotFoundError:
                    continue  # deleted since its folder was read
                if stat.S_ISREG(status.st_mode):
                    found.append(_as_listed(key, status))
        return sorted(found, key=lambda item: item.key)

    def find(self, key: str) -> ObjectVersion:
        """See `ObjectStore.find`."""
        with self._errors("find", key):
            status = self._path(key).stat()
        return _as_listed(key, status)

    def read(self, key: str, *, version: str | None = None) -> bytes:
        """See `ObjectStore.read`."""
        try:
            with self._errors("read", key), self._path(key).open("rb") as file:
                before = _version(os.fstat(file.fileno()))
                data = file.read()
                after = _version(os.fstat(file.fileno()))  # someone may be writing in place
        except ObjectNotFoundError:
            self._require_folder()  # a folder that is not mounted proves no absence
            raise
        if version is not None and (before, after) != (version, version):
            raise changed_error(self.url, key)
        return data

    def write(self, key: str, data: bytes) -> None:
        """See `ObjectStore.write`: a synced temporary file renamed over the name."""
        path = self._path(key)
        with self._errors("write", key), _temporary(path, data) as temporary:
            temporary.replace(path)

    def create(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.create`: a hard link fails if its name is taken, on NFS too."""
        path = self._path(key)
        with self._errors("create", key), _temporary(path, data) as temporary:
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                if path.is_dir():
                    raise
                return False
        return True

    def _path(self, key: str) -> Path:
        parts = key.strip("/").split("/")
        if any(part in {"", ".", ".."} or part.startswith(_TEMPORARY) or "\0" in part for part in parts):
            raise ConfigurationError(
                f"{key!r} is not a key of {self.url}.",
                hint="Allowed: names joined by '/', without '.' or '..'.",
            )
        return self.folder.joinpath(*parts)

    def _require_folder(self) -> None:
        if not self.folder.is_dir():
            what = "is a file" if self.folder.exists() else "does not exist"
            raise ConfigurationError(
                f"The folder {self.url} {what}.", hint="Allowed: an existing folder, or s3://bucket/prefix."
            )

    @contextmanager
    def _errors(self, verb: str, key: str) -> Generator[None]:
        """Say what an operating system's error means for the caller."""
        what = f"Could not {verb} {key or 'the objects'} in {self.url}"
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            if verb in {"read", "find"}:
                raise ObjectNotFoundError(f"{self.url} holds no object {key}.") from error
            raise ConfigurationError(
                f"{what}: {error.strerror}.", hint="A name cannot be both a file and a folder."
            ) from error
        except PermissionError as error:
            raise ConfigurationError(
                f"{what}: {error.strerror}.", hint="Give the user that runs floodmark access to this folder."
            ) from error
        except OSError as error:
            raise RetryableError(
                f"{what}: {error.strerror}.", hint="Nothing was changed. Run the same command again."
            ) from error


def _as_listed(key: str, status: os.stat_result) -> ObjectVersion:
    return ObjectVersion(key=key, size=status.st_size, version=_version(status), modified=status.st_mtime)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; links are followed, but never in a circle."""
    visited = set()

    def refuse(error: OSError) -> None:
        if not isinstance(
            error, FileNotFoundError | NotADirectoryError
        ):  # absent is empty, unreadable is not
            raise error

    for here, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        yield from (Path(here, name) for name in names if not name.startswith(_TEMPORARY))


@contextmanager
def _temporary(path: Path, data: bytes) -> Generator[Path]:
    """Hold `data` on disk beside `path` while the caller gives it its name; then sync the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
