"""How a source is looked at: the settings in `[incoming]`."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingSettings:
    """When listed objects are looked at again, and taken.

    Attributes:
        full_listing_seconds: A source of more objects than one call lists is listed in full so often; in
            between, each look lists its last names and what follows them.
        settle_seconds: A folder of objects is taken once it has not changed for so long, because its parts
            arrive one after the other.
        max_window_gigabytes: A larger window is quarantined unread, for it would not fit memory: it is held
            whole, at eight bytes a value and several times over.
        notifications_queue_url: The SQS queue that the bucket's event notifications go to, which wakes
            `floodmark run --follow`.
    """

    full_listing_seconds: float = 900.0
    settle_seconds: float = 0.0
    max_window_gigabytes: float = 2.0
    notifications_queue_url: str | None = None

    def __post_init__(self) -> None:
        for name in ("full_listing_seconds", "settle_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must not be negative")
        if not self.max_window_gigabytes > 0:
            raise ValueError(f"max_window_gigabytes is {self.max_window_gigabytes}; it must be positive")
        if self.notifications_queue_url is not None:
            place = urlsplit(self.notifications_queue_url)
            named = place.scheme in {"http", "https"} and place.hostname and place.path.strip("/")
            if not named or "@" in place.netloc or place.query:
                raise ValueError(
                    "notifications_queue_url is not a queue's address, as "
                    "https://sqs.eu-central-1.amazonaws.com/123456789012/arrivals"
                )
