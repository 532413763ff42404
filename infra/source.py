"""The windows of a data source: which objects arrived together, in which order, and their rows."""

import re
import time
from collections import defaultdict, deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa

from infra.incoming_settings import IncomingSettings
from infra.known_objects import KnownObjects
from infra.object_store import Listing, ObjectNotFoundError, ObjectStore
from infra.tables import SUFFIXES, CsvFormat, concatenate, read_table, suffix_of, to_frame
from training.errors import ConfigurationError, InvalidWindowError, RetryableError
from training.types import ObjectVersion, Window

_ALLOWED = (
    f"Allowed: files ending in {', '.join(SUFFIXES)}, one for each window, or folders of them; names that "
    "begin with '_' or '.' are ignored."
)

_READERS = 8
_BYTES_PER_VALUE = 8


@dataclass(slots=True)
class Source:
    """The objects of a store seen as windows.

    An object at the root is a window named as the object without its suffix. The objects of a folder
    are one window, named by the folder's path.
    """

    store: ObjectStore
    csv: CsvFormat
    incoming: IncomingSettings = field(default_factory=IncomingSettings)
    _known: KnownObjects = field(init=False)
    _seen: tuple[Listing, list[Window]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._known = KnownObjects(self.store, self.incoming.full_listing_seconds)

    @property
    def ignored(self) -> list[str]:
        """Keys of objects whose suffix says no known format, as of the last look."""
        return [item.key for item in self._known.objects if not (_hidden(item.key) or suffix_of(item.key))]

    def windows(self) -> list[Window]:
        """List everything; return all windows, oldest first: ids in natural order (w2 before w10).

        Raises ConfigurationError when there are none, or when one id stands for two objects.
        """
        return self._windows(self._known.list())

    def look(self, *, full: bool = False) -> list[Window]:
        """Return the windows that may be taken, at the cost of a call or two (`infra.known_objects`).

        Those whose parts may still be arriving are left out. `full` lists everything.
        """
        listed = self._windows(self._known.list() if full else self._known.look())
        waiting = self._settling(listed)
        return [window for window in listed if window.id not in waiting] if waiting else listed

    def notice(self, keys: set[str]) -> bool:
        """Look at objects of which somebody told; return whether a window is not as it was known."""
        return self._known.notice(sorted(key for key in keys if self.window_of(key) is not None))

    def window_of(self, key: str) -> str | None:
        """Return the id of the window that an object belongs to; None for what is no data."""
        suffix = suffix_of(key)
        if suffix is None or _hidden(key):
            return None
        return key.rpartition("/")[0] or key[: -len(suffix)]

    @property
    def settling(self) -> list[str]:
        """Windows that the last look left out: folders that had changed less than `settle_seconds` ago."""
        return sorted(self._settling(self._windows(self._known.objects)), key=_natural)

    def _settling(self, listed: list[Window]) -> set[str]:
        if not self.incoming.settle_seconds:
            return set()
        since = time.time() - self.incoming.settle_seconds
        return {
            window.id
            for window in listed
            if any("/" in item.key and (item.modified or 0.0) > since for item in window.objects)
        }

    def _windows(self, listed: Listing) -> list[Window]:
        if self._seen is None or self._seen[0] is not listed:
            self._seen = (listed, self._grouped(listed))
        return self._seen[1]

    def _grouped(self, listed: Listing) -> list[Window]:
        taken = [item for item in listed if suffix_of(item.key) and not _hidden(item.key)]
        if not taken:
            what = f"holds only ignored objects ({_some(listed)})" if listed else "is empty"
            raise ConfigurationError(f"The source {self.store.url} {what}.", hint=_ALLOWED)
        owners: dict[str, str] = {}
        parts: dict[str, list[ObjectVersion]] = defaultdict(list)
        for item in taken:
            stem = item.key[: -len(suffix_of(item.key) or "")]
            folder = item.key.rpartition("/")[0]
            self._own(owners, stem, item.key)
            if folder:
                self._own(owners, folder, f"{folder}/")
            parts[folder or stem].append(item)
        return [
            Window(id=name, objects=tuple(sorted(parts[name], key=lambda item: _natural(item.key))))
            for name in sorted(parts, key=_natural)
        ]

    def read(self, window: Window, categorical: frozenset[str] = frozenset()) -> pd.DataFrame:
        """Return the rows of all parts of a window, with a fresh RangeIndex.

        `categorical` names columns that stay text in CSV files. Raises InvalidWindowError when a part
        is unusable or differs from the others, RetryableError when an object is not as it was listed.
        """
        self._refuse_large(window.id, sum(item.size for item in window.objects))
        parts, held = [], 0
        with closing(self._tables(window, categorical)) as tables:
            for key, table in tables:
                held += table.num_rows * table.num_columns * _BYTES_PER_VALUE
                self._refuse_large(window.id, held)
                parts.append((key, table))
        frame = to_frame(concatenate(parts))
        if frame.empty:
            raise InvalidWindowError(f"Window {window.id} holds no rows.", hint=_ALLOWED)
        return frame

    def _tables(self, window: Window, texts: frozenset[str]) -> Generator[tuple[str, pa.Table]]:
        """Yield the parts in their order, a few being read at a time: a window may have thousands."""
        with ThreadPoolExecutor(_READERS) as pool:
            coming: deque[Future[tuple[str, pa.Table]]] = deque()
            try:
                for item in window.objects:
                    coming.append(pool.submit(self._table, item, texts))
                    if len(coming) == _READERS:
                        yield coming.popleft().result()
                while coming:
                    yield coming.popleft().result()
            finally:
                for future in coming:
                    future.cancel()

    def _table(self, item: ObjectVersion, texts: frozenset[str]) -> tuple[str, pa.Table]:
        try:
            data = self.store.read(item.key, version=item.version)
        except RetryableError:
            self._known.forget()  # it may be no longer as it was listed
            raise
        except ObjectNotFoundError as error:
            self._known.forget()
            raise RetryableError(
                f"{item.key} vanished from {self.store.url} after it was listed.",
                hint="Nothing was taken. Run the same command again.",
            ) from error
        most = self.incoming.max_window_gigabytes * 1e9 / _BYTES_PER_VALUE
        return item.key, read_table(
            item.key, data, self.csv, strings=texts, allow_empty=True, most_values=int(most)
        )

    def _refuse_large(self, name: str, size: int) -> None:
        most = self.incoming.max_window_gigabytes
        if size > most * 1e9:
            raise InvalidWindowError(
                f"Window {name} is larger than {most:g} GB: it holds {size / 1e9:.1f} GB or more.",
                hint="Send smaller windows, or raise [incoming] max_window_gigabytes: it is then taken anew.",
            )

    def _own(self, owners: dict[str, str], name: str, key: str) -> None:
        """Let an object stand for an id, unless another one does."""
        other = owners.setdefault(name, key)
        if other != key:
            raise ConfigurationError(
                f"Two objects in {self.store.url} stand for {name!r}: {other} and {key}.",
                hint="Remove or rename one of them.",
            )


def _hidden(key: str) -> bool:
    return any(part.startswith(("_", ".")) for part in key.split("/"))


def _some(listed: list[ObjectVersion]) -> str:
    names, more = [item.key for item in listed[:3]], len(listed[3:])
    return ", ".join(names) + (f" and {more} more" if more else "")


def _natural(name: str) -> tuple[tuple[str | int, ...], str]:
    """Order digits as numbers; the name itself decides between w2 and w02."""
    pieces = re.split(r"([0-9]+)", name)  # text and digits in turn, so equal places compare
    return tuple(int(piece) if position % 2 else piece for position, piece in enumerate(pieces)), name
