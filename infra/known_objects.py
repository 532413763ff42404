"""What a store is known to hold, kept up to date with few calls."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from infra.object_store import Listing, ObjectNotFoundError, ObjectStore
from training.errors import RetryableError
from training.types import ObjectVersion


@dataclass(slots=True)
class KnownObjects:
    """The objects of one store as they were last listed.

    Names mostly grow with time, so `look` lists the last half page of the known names again and what follows
    them: one call while at most as much is new. What changed before them is seen by the full listing: every
    `full_listing_seconds`, after `forget`, and always where one call lists everything.
    """

    store: ObjectStore
    full_listing_seconds: float
    _objects: Listing = field(default_factory=list)
    _listed_at: float | None = None  # on the monotonic clock

    @property
    def objects(self) -> Listing:
        """The objects as of the last look, sorted by key."""
        return self._objects

    def look(self) -> Listing:
        """Return the objects, sorted by key; the same list while nothing has changed."""
        page, now = self.store.objects_per_call, time.monotonic()
        due = self._listed_at is None or now - self._listed_at >= self.full_listing_seconds
        if due or page is None or len(self._objects) < page:
            return self.list()
        self._add(self.store.list(after=self._objects[-(page // 2)].key))
        return self._objects

    def list(self) -> Listing:
        """List everything; return the objects, sorted by key."""
        now, listed = time.monotonic(), self.store.list()
        if listed != self._objects:
            self._objects = listed
        self._listed_at = now
        return self._objects

    def forget(self) -> None:
        """Let the next look list everything, because something is not as it was listed."""
        self._listed_at = None

    def notice(self, keys: Iterable[str]) -> bool:
        """Look at single objects, of which somebody told; return whether any is not as it was known."""
        before = self._objects
        for key in keys:
            try:
                self._add([self.store.find(key)])
            except RetryableError:
                self.forget()
                raise
            except ObjectNotFoundError:
                remaining = [item for item in self._objects if item.key != key]
                if len(remaining) < len(self._objects):
                    self._objects = remaining
        return self._objects is not before

    def _add(self, found: Listing) -> None:
        """Take in what was found; nothing is concluded from what was not."""
        known = {item.key: item for item in self._objects}
        if any(known.get(item.key) != item for item in found):
            known.update((item.key, item) for item in found)
            self._objects = sorted(known.values(), key=_key)


def _key(item: ObjectVersion) -> str:
    return item.key
