"""What a message about objects in S3 tells: the keys that changed.

Source: Amazon S3 User Guide, "Event message structure" (versions 2.x) and "s3:TestEvent"; Amazon SNS
Developer Guide for messages that come through a topic, whose `Message` is the event's text.
"""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus


class MalformedMessageError(ValueError):
    """A message is no S3 event that this version understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedObject:
    """An object that was written, removed or otherwise touched; None is S3's test of the queue."""

    bucket: str
    key: str | None


def changed_objects(body: str) -> list[ChangedObject]:
    """Return the objects that a message tells of.

    Raises:
        MalformedMessageError: It is no S3 event.
    """
    try:
        event = _document(body)
        if event.get("Type") == "Notification" and isinstance(event.get("Message"), str):
            event = _document(event["Message"])
        if event.get("Event") == "s3:TestEvent":
            return [ChangedObject(bucket=_text(event["Bucket"]), key=None)]
        return [_changed(record) for record in event["Records"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise MalformedMessageError(f"it is no S3 event ({type(error).__name__})") from error


def _document(text: str) -> dict[str, Any]:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError
    return document


def _changed(record: Any) -> ChangedObject:  # noqa: ANN401 - anything may stand in a message
    if _text(record["eventVersion"]).partition(".")[0] != "2":
        raise ValueError
    bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
    return ChangedObject(bucket=_text(bucket), key=unquote_plus(_text(key), errors="strict"))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value
