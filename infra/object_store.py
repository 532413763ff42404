"""Objects in a folder or an S3 bucket behind four verbs: list, read, write and create.

`create` is the exclusive one on which claims rest. A missing bucket or root folder is a
`ConfigurationError`, never an empty listing, and only a certain absence is an `ObjectNotFoundError`.
"""

from typing import Protocol

from training.errors import FloodmarkError, RetryableError
from training.types import ObjectVersion

Listing = list[ObjectVersion]  # inside the classes `list` is the verb


class ObjectNotFoundError(FloodmarkError):
    """The store answered, and holds no object under this key."""


class ObjectStore(Protocol):
    """What a store of objects can do; keys are relative to its root, with '/' between their parts."""

    @property
    def url(self) -> str:
        """Where the store is, as `open_store` takes it."""

    @property
    def objects_per_call(self) -> int | None:
        """How many objects one call lists; None where a listing is no call."""

    def list(self, prefix: str = "", *, after: str = "") -> Listing:
        """Return all objects in the folder `prefix` and below it, by key; with `after`, only greater keys.

        A folder that holds nothing gives an empty list. Raises ConfigurationError when the bucket or
        the root folder is missing or refuses access, RetryableError when the store cannot be reached.
        """

    def find(self, key: str) -> ObjectVersion:
        """Return one object as `list` would, without looking at any other.

        Raises ObjectNotFoundError when it is absent.
        """

    def read(self, key: str, *, version: str | None = None) -> bytes:
        """Return an object's content.

        Raises ObjectNotFoundError when it is absent, and RetryableError when `version` is given and
        the object is not, or no longer, at that version.
        """

    def write(self, key: str, data: bytes) -> None:
        """Write an object, replacing one that exists: readers see the old or the new content whole."""

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none; of any number of callers exactly one gets True.

        After a RetryableError the object may exist: call again.
        """


def changed_error(url: str, key: str) -> RetryableError:
    """Return the error of an object that is no longer at the version that was listed."""
    return RetryableError(
        f"{key} in {url} changed after it was listed.", hint="Nothing was taken. Run the same command again."
    )
