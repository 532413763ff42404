"""MLflow's webhooks as they arrive: signed, recent, seen for the first time, and of a known shape.

The signature is `v1,` and the Base64 of HMAC-SHA256 over `delivery id.timestamp.body` (MLflow 3,
"Webhooks: signature verification").
"""

import base64
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal

from pydantic import TypeAdapter, ValidationError

SIGNATURE, DELIVERY, TIMESTAMP = "x-mlflow-signature", "x-mlflow-delivery-id", "x-mlflow-timestamp"
MOST_BYTES = 64 * 1024
TOLERANCE_S = 300
"""How far a delivery's clock may be from ours, either way; MLflow's documentation proposes five minutes."""

LONGEST_TIMESTAMP = 12
MOST_REMEMBERED = 100_000
"""Deliveries kept within the tolerance; beyond it new ones are refused, since a replay could not be told."""


class RejectedError(Exception):
    """A delivery that is not acted on, with the HTTP status that its sender is answered."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasEvent:
    """An alias was set to a version, or deleted (`version` is None)."""

    model: str
    alias: str
    version: str | None


@dataclass(frozen=True, slots=True)
class _Data:
    name: str
    alias: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class _Payload:
    entity: Literal["model_version_alias"]
    action: Literal["created", "deleted"]
    data: _Data


PAYLOAD = TypeAdapter(_Payload)


@dataclass(slots=True)
class Verifier:
    """Lets each authentic delivery through once. `secret` is shared with MLflow."""

    secret: str = field(repr=False)
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if not self.secret:
            raise ValueError("an empty secret signs nothing")

    def verify(self, headers: Mapping[str, str], body: bytes, now: float | None = None) -> AliasEvent:
        """Return the event of a delivery; `headers` are found by their lower-case names.

        Raises:
            RejectedError: It is too large, forged, old, replayed, or no alias event.
        """
        now = time.time() if now is None else now
        if len(body) > MOST_BYTES:
            raise RejectedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{len(body)} bytes; allowed are {MOST_BYTES}"
            )
        delivery, timestamp = headers.get(DELIVERY, ""), headers.get(TIMESTAMP, "")
        signed = b".".join((delivery.encode(), timestamp.encode(), body))
        digest = hmac.new(self.secret.encode(), signed, hashlib.sha256).digest()
        due = "v1," + base64.b64encode(digest).decode()
        given = headers.get(SIGNATURE, "").encode()
        if not delivery or not hmac.compare_digest(due.encode(), given):
            raise RejectedError(HTTPStatus.UNAUTHORIZED, "the signature is missing or wrong")
        self._refuse_old(timestamp, now)
        self._refuse_replayed(delivery, now)
        try:
            payload = PAYLOAD.validate_json(body)
        except ValidationError as error:
            raise RejectedError(HTTPStatus.UNPROCESSABLE_ENTITY, "it is no event of an alias") from error
        return AliasEvent(model=payload.data.name, alias=payload.data.alias, version=payload.data.version)

    def _refuse_old(self, timestamp: str, now: float) -> None:
        readable = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= LONGEST_TIMESTAMP
        age = now - int(timestamp) if readable else float("inf")
        if not abs(age) <= TOLERANCE_S:
            raise RejectedError(
                HTTPStatus.UNAUTHORIZED,
                f"its time is {age:.0f} s from this clock's; allowed are {TOLERANCE_S}",
            )

    def _refuse_replayed(self, delivery: str, now: float) -> None:
        """A delivery is remembered for as long as its timestamp could still be taken."""
        while self._seen and next(iter(self._seen.values())) < now - 2 * TOLERANCE_S:
            self._seen.popitem(last=False)
        if delivery in self._seen:
            raise RejectedError(HTTPStatus.CONFLICT, "it was delivered before")
        if len(self._seen) >= MOST_REMEMBERED:
            raise RejectedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many deliveries within ten minutes")
        self._seen[delivery] = now
