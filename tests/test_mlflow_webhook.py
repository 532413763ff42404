"""A delivery is acted on once, and only when MLflow signed it a moment ago."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from mlflow.webhooks.delivery import _generate_hmac_signature
from starlette.applications import Starlette

from flows.listen import receiver
from infra.asgi import bind
from infra.mlflow_webhook import (
    DELIVERY,
    MOST_BYTES,
    SIGNATURE,
    TIMESTAMP,
    TOLERANCE_S,
    AliasEvent,
    RejectedError,
    Verifier,
)
from training.errors import RetryableError

SECRET = "swordfish"  # noqa: S105 - of this test
NOW = 1_800_000_000.0


OTHER = "another secret"


def body(**changes: object) -> bytes:
    data = {"name": "pumps", "alias": "champion", "version": "3"}
    event = {"entity": "model_version_alias", "action": "created", "timestamp": "now", "data": data}
    return json.dumps(event | changes).encode()


def signed(content: bytes, delivery: str = "one", at: float = NOW, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"{delivery}.{at:.0f}.".encode() + content, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {DELIVERY: delivery, TIMESTAMP: f"{at:.0f}", SIGNATURE: signature}


def test_it_is_mlflows_own_signature() -> None:
    assert signed(body())[SIGNATURE] == _generate_hmac_signature(SECRET, "one", f"{NOW:.0f}", body().decode())


def test_an_event_is_taken_once() -> None:
    verifier = Verifier(SECRET)
    event = AliasEvent(model="pumps", alias="champion", version="3")
    assert verifier.verify(signed(body()), body(), NOW) == event
    deleted = body(action="deleted", data={"name": "pumps", "alias": "champion"})
    assert verifier.verify(signed(deleted, "two"), deleted, NOW).version is None
    for later in (0, TOLERANCE_S):
        with pytest.raises(RejectedError, match="delivered before"):
            verifier.verify(signed(body()), body(), NOW + later)


@given(age=st.floats(-3 * TOLERANCE_S, 3 * TOLERANCE_S), wait=st.floats(0, 3 * TOLERANCE_S))
def test_no_delivery_is_ever_taken_twice(age: float, wait: float) -> None:
    verifier, taken = Verifier(SECRET), 0
    headers = signed(body(), at=NOW - age)
    for now in (NOW, NOW + wait):
        try:
            verifier.verify(headers, body(), now)
            taken += 1
        except RejectedError:
            pass
    assert taken <= 1
    if abs(age) < TOLERANCE_S - 1:
        assert taken == 1


WRONG: dict[str, tuple[Callable[[], tuple[dict[str, str], bytes]], int, str]] = {
    "unsigned": (lambda: ({}, body()), 401, "signature"),
    "another secret": (lambda: (signed(body(), secret=OTHER), body()), 401, "signature"),
    "an exchanged body": (lambda: (signed(body()), body(action="deleted")), 401, "signature"),
    "another time": (lambda: (signed(body()) | {TIMESTAMP: f"{NOW + 1:.0f}"}, body()), 401, "signature"),
    "another delivery": (lambda: (signed(body()) | {DELIVERY: "two"}, body()), 401, "signature"),
    "no text": (lambda: (signed(body()) | {SIGNATURE: "v1,ü"}, body()), 401, "signature"),
    "old": (lambda: (signed(body(), at=NOW - TOLERANCE_S - 1), body()), 401, "s from this clock's"),
    "from the future": (lambda: (signed(body(), at=NOW + TOLERANCE_S + 1), body()), 401, "clock"),
    "oversized": (lambda: (signed(b"x" * (MOST_BYTES + 1)), b"x" * (MOST_BYTES + 1)), 413, "allowed"),
    "no JSON": (lambda: (signed(b"{"), b"{"), 422, "no event"),
    "another event": (lambda: (signed(body(entity="prompt")), body(entity="prompt")), 422, "no event"),
    "no version's name": (lambda: (signed(body(data=[])), body(data=[])), 422, "no event"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str) -> None:
    make, status, said = WRONG[case]
    with pytest.raises(RejectedError, match=said) as refused:
        Verifier(SECRET).verify(*make(), NOW)
    assert refused.value.status == status


def test_nothing_is_taken_without_a_secret() -> None:
    with pytest.raises(ValueError, match="empty secret"):
        Verifier("")


@contextmanager
def serving(application: Starlette) -> Iterator[httpx.Client]:
    with bind("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def test_the_receiver_reconciles_after_what_it_took_and_only_then() -> None:
    looks: list[float] = []
    looked = threading.Event()

    def reconcile() -> None:
        looks.append(time.monotonic())
        looked.set()
        raise RetryableError("the registry is down")  # it must not end the receiver

    def post(client: httpx.Client, content: bytes, headers: dict[str, str]) -> int:
        return client.post("/mlflow", content=content, headers=headers).status_code

    now = time.time()
    with serving(receiver("pumps", Verifier(SECRET), reconcile)) as client:
        assert client.get("/health").json() == {"alive": True}
        assert looked.wait(10), "what was missed while nobody listened"
        looked.clear()
        other = body(data={"name": "fans", "alias": "champion", "version": "1"})
        assert post(client, other, signed(other, "a", now)) == 204
        alias = body(data={"name": "pumps", "alias": "challenger", "version": "1"})
        assert post(client, alias, signed(alias, "b", now)) == 204
        assert post(client, body(), signed(body(), "c", now, secret=OTHER)) == 401
        large = b"x" * (MOST_BYTES + 1)
        assert post(client, large, signed(large, "d", now)) == 413
        assert len(looks) == 1
        assert post(client, body(), signed(body(), "e", now)) == 202
        assert looked.wait(10)
        assert post(client, body(), signed(body(), "e", now)) == 409
        looked.clear()
        assert post(client, body(), signed(body(), "f", now)) == 202
        assert looked.wait(10), "a failed look must not end the receiver"
    assert len(looks) == 3
