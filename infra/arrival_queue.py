"""S3 event notifications through SQS: what tells of new objects sooner than the next look does.

It only ever wakes: windows are what a listing says. A message that is lost, comes twice or out of order
changes nothing but the time of a look. One that is not about this source, or that nobody understands, is left
in the queue: for its own reader, or for the queue's dead-letter queue.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore import exceptions as boto
from botocore.config import Config

from infra.s3_events import MalformedMessageError, changed_objects
from infra.s3_store import CREDENTIAL_ERRORS, S3Store, code_of
from training.errors import RetryableError

LONGEST_POLL_SECONDS = 20
MESSAGES_PER_CALL = 10
_REGION = re.compile(r"(?:^|\.)sqs\.([a-z0-9-]+)\.")
_HINTS = {
    "QueueDoesNotExist": "Check [incoming] notifications_queue_url, its region and account.",
    "AWS.SimpleQueueService.NonExistentQueue": (
        "Check [incoming] notifications_queue_url, its region and account."
    ),
}
_OTHERWISE = "Check the credentials, and allow sqs:ReceiveMessage and sqs:DeleteMessage on the queue."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    receipt: str
    keys: tuple[str, ...]


@dataclass(slots=True)
class ArrivalQueue:
    """The queue at `url` that is told of the objects of `store`."""

    url: str
    store: S3Store
    unread: int = 0  # messages that were left in the queue, each time that they came
    _held: dict[str, _Message] = field(default_factory=dict)  # by message id
    _client: Any = None

    def receive(self, seconds: float) -> set[str]:
        """Wait up to `seconds` (20 at most) for messages; return the keys of this source that they tell of.

        They come again, when the queue's visibility timeout has passed, until `delete` takes them out.

        Raises:
            RetryableError: The queue cannot be read.
        """
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=MESSAGES_PER_CALL,
            WaitTimeSeconds=max(0, min(LONGEST_POLL_SECONDS, int(seconds))),
        )
        told: set[str] = set()
        for message in answer.get("Messages", ()):
            keys = self._own_keys(message["Body"])
            if keys is None:
                self.unread += 1
                continue
            self._held[message["MessageId"]] = _Message(receipt=message["ReceiptHandle"], keys=keys)
            told.update(keys)
        return told

    def delete(self, done: Callable[[str], bool]) -> None:
        """Take out the messages of whose keys all are `done`.

        Raises:
            RetryableError: The queue cannot be reached; the messages come again.
        """
        ended = [name for name, message in self._held.items() if all(map(done, message.keys))]
        for first in range(0, len(ended), MESSAGES_PER_CALL):
            names = ended[first : first + MESSAGES_PER_CALL]
            entries = [
                {"Id": str(place), "ReceiptHandle": self._held[name].receipt}
                for place, name in enumerate(names)
            ]
            self._call("delete_message_batch", Entries=entries)
            for name in names:  # what could not be deleted comes again
                del self._held[name]

    def _own_keys(self, body: str) -> tuple[str, ...] | None:
        """Return the keys of this source in a message, relative to its root; None for another's message."""
        try:
            changed = changed_objects(body)
        except MalformedMessageError:
            return None
        root = f"{self.store.prefix}/" if self.store.prefix else ""
        if any(
            item.bucket != self.store.bucket or not (item.key or root).startswith(root) for item in changed
        ):
            return None
        return tuple(item.key.removeprefix(root) for item in changed if item.key)

    def _call(self, verb: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 has it
        what = f"The queue {self.url} cannot be read"
        try:
            self._client = self._client or _client(self.url, self.store.settings.region)
            answer: dict[str, Any] = getattr(self._client, verb)(QueueUrl=self.url, **arguments)
        except boto.ClientError as error:
            code, status = code_of(error)
            raise RetryableError(
                f"{what}: the server answered {code} ({status}).", hint=_HINTS.get(code, _OTHERWISE)
            ) from error
        except (boto.BotoCoreError, ValueError) as error:
            hint = (
                _OTHERWISE if isinstance(error, CREDENTIAL_ERRORS) else "Check its address and the network."
            )
            raise RetryableError(f"{what}: {type(error).__name__}.", hint=hint) from error
        return answer


def _client(url: str, region: str | None) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
    """Return a client of the place and region that a queue's address names."""
    place = urlsplit(url)
    named = _REGION.search(place.hostname or "")
    return boto3.session.Session().client(
        "sqs",
        endpoint_url=f"{place.scheme}://{place.netloc}",
        region_name=named[1] if named else region,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": 2},
            connect_timeout=5,
            read_timeout=LONGEST_POLL_SECONDS + 10,
        ),
    )
