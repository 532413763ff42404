"""S3 event notifications through SQS: what a message tells, what stays in the queue, what wakes the loop."""

import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import FLOODMARK, environment, status
from flows.waiting import Waiting
from infra.arrival_queue import ArrivalQueue
from infra.incoming_settings import IncomingSettings
from infra.s3_events import ChangedObject, MalformedMessageError, changed_objects
from infra.s3_store import S3Settings, S3Store, s3_client
from infra.source import Source
from infra.tables import CsvFormat
from s3_server import S3Server
from sqs_server import Queue
from training.errors import RetryableError


def event(bucket: str, *keys: str, name: str = "ObjectCreated:Put", version: str = "2.1") -> str:
    """A message as S3 sends it."""
    record = {"eventVersion": version, "eventSource": "aws:s3", "awsRegion": "us-east-1", "eventName": name}
    return json.dumps(
        {
            "Records": [
                {
                    **record,
                    "s3": {
                        "s3SchemaVersion": "1.0",
                        "configurationId": "arrivals",
                        "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
                        "object": {"key": quote_plus(key, safe="/"), "size": 4, "eTag": "d41d8"},
                    },
                }
                for key in keys
            ]
        }
    )


def through_topic(message: str) -> str:
    return json.dumps(
        {"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:", "Message": message}
    )


def trial_event(bucket: str) -> str:
    return json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": bucket, "HostId": "8"})


@given(st.lists(st.text(min_size=1).filter(lambda key: key.isprintable()), max_size=3), st.booleans())
def test_every_key_comes_through(keys: list[str], topic: bool) -> None:
    message = event("plant", *keys)
    found = changed_objects(through_topic(message) if topic else message)
    assert found == [ChangedObject(bucket="plant", key=key) for key in keys]


POISON = [
    "",
    "no JSON",
    "[]",
    "null",
    '{"Records": null}',
    '{"Records": [{}]}',
    '{"Records": ["x"]}',
    '{"Type": "Notification", "Message": "no JSON"}',
    '{"Type": "Notification", "Message": 7}',
    '{"Event": "s3:TestEvent"}',
    event("plant", "w.csv", version="3.0"),
    event("plant", "w.csv").replace('"w.csv"', "null"),
    event("plant", "w.csv").replace("w.csv", "%ff.csv"),
    "[" * 100_000,
]


@pytest.mark.parametrize("body", POISON, ids=range(len(POISON)))
def test_what_is_no_event_is_malformed(body: str) -> None:
    with pytest.raises(MalformedMessageError):
        changed_objects(body)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda kids: (
            st.lists(kids)
            | st.dictionaries(
                st.sampled_from(
                    ["Records", "Type", "Message", "Event", "Bucket", "s3", "object", "key", "eventVersion"]
                ),
                kids,
            )
        ),
    )
)
def test_nothing_else_is_raised_whatever_comes(document: object) -> None:
    with contextlib.suppress(MalformedMessageError):
        changed_objects(json.dumps(document))


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    s3_client.cache_clear()
    yield S3Store(s3_server.bucket, f"plant {uuid.uuid4().hex}", S3Settings())
    s3_client.cache_clear()


def test_messages_stay_until_the_ledger_has_their_windows_and_others_stay(
    store: S3Store, queue: Queue
) -> None:
    arrivals = ArrivalQueue(queue.url, store)
    own = event(store.bucket, f"{store.prefix}/1 ü+.csv", f"{store.prefix}/2.csv")
    queue.send(own, through_topic(event(store.bucket, f"{store.prefix}/3.csv", name="ObjectRemoved:Delete")))
    assert arrivals.receive(5) | arrivals.receive(0) == {"1 ü+.csv", "2.csv", "3.csv"}
    arrivals.delete(lambda key: key != "2.csv")
    assert queue.left() == 1
    time.sleep(2.5)  # the visibility timeout
    assert arrivals.receive(5) == {"1 ü+.csv", "2.csv"}  # a message counts as a whole
    arrivals.delete(lambda _: True)
    assert queue.left() == 0

    queue.send(own, own, trial_event(store.bucket), *POISON[1:5])
    queue.send(event("another", "1.csv"), event(store.bucket, "elsewhere/1.csv"), trial_event("another"))
    told = set()
    for _ in range(5):
        told |= arrivals.receive(0)
    assert told == {"1 ü+.csv", "2.csv"}
    arrivals.delete(lambda _: True)
    assert queue.left() == len(POISON[1:5]) + 3  # for their own reader, or the dead-letter queue
    assert arrivals.unread >= queue.left()


def test_a_queue_that_cannot_be_read_says_why_and_shows_no_secret(
    store: S3Store, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failure(url: str) -> str:
        with pytest.raises(RetryableError) as caught:
            ArrivalQueue(url, store).receive(1)
        assert os.environ.get("AWS_SECRET_ACCESS_KEY", "no secret") not in str(caught.value)
        return str(caught.value)

    absent = failure(f"{queue.url}-absent")
    assert "QueueDoesNotExist (400)" in absent or "NonExistentQueue (400)" in absent
    assert "notifications_queue_url" in absent
    assert "EndpointConnectionError" in failure("http://127.0.0.1:9/1/arrivals")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "NoCredentialsError" in failure(queue.url)
    assert "sqs:ReceiveMessage" in failure(queue.url)


def test_a_wait_ends_with_news_and_not_with_what_is_known(store: S3Store, queue: Queue) -> None:
    store.write("w1.csv", b"a\n1\n")
    source = Source(store, CsvFormat(), IncomingSettings(settle_seconds=3_600))
    assert [window.id for window in source.look()] == ["w1"]
    told: list[str] = []
    waiting = Waiting(source, ArrivalQueue(queue.url, store), told.append)

    queue.send(event(store.bucket, f"{store.prefix}/w1.csv"), event("another", "w.csv"))
    started = time.monotonic()
    waiting.wait(3)
    assert time.monotonic() - started >= 3
    assert len(told) == 1
    assert "another" not in told[0]

    store.write("w0.csv", b"a\n1\n")
    store.write("dt=2026-01-05/part-0.csv", b"a\n1\n")
    queue.send(event(store.bucket, f"{store.prefix}/w0.csv"))
    queue.send(event(store.bucket, f"{store.prefix}/dt=2026-01-05/part-0.csv"))
    started = time.monotonic()
    waiting.wait(60)
    assert time.monotonic() - started < 50
    assert [window.id for window in source.look()] == ["w0", "w1"]
    waiting.wait(3)
    assert queue.left() == 2  # the foreign one, and that of a folder that is not settled
    assert len(told) == 1

    broken = Waiting(source, ArrivalQueue(f"{queue.url}-absent", store), told.append)
    for _ in range(2):  # listing goes on, and what is wrong is told once
        started = time.monotonic()
        broken.wait(1.5)
        assert time.monotonic() - started >= 1.5
    assert len(told) == 2
    assert "by listing every 1.5 s" in told[1]


def wait_for(reached: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 200
    while not reached():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_an_event_wakes_the_loop_and_its_message_goes_when_the_ledger_has_the_window(
    store: S3Store, queue: Queue, s3_server: S3Server, tmp_path: Path
) -> None:
    store.write("w1.csv", b"a,b\n" + b"".join(b"%d,%d\n" % (row, row % 7) for row in range(100)))
    variables = s3_server.environment | {
        "FLOODMARK_FOLLOW_SECONDS": "500",
        "FLOODMARK_INCOMING__NOTIFICATIONS_QUEUE_URL": queue.url,
    }
    home = tmp_path / "home"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [FLOODMARK, "run", store.url, "--follow", "--home", home],
            env=environment(variables),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: b"w1" in (tmp_path / "log").read_bytes(), process)
        store.write("w0.csv", b"a,b\n" + b"".join(b"%d,%d\n" % (row + 5, row % 5) for row in range(100)))
        queue.send(event(store.bucket, f"{store.prefix}/w0.csv"))
        wait_for(lambda: queue.left() == 0, process)
    finally:
        process.terminate()
        process.wait(timeout=60)
    taken = [window["id"] for window in status(home, s3_server.environment)["windows"]]
    assert taken == ["w1", "w0"]
    assert s3_server.secret_key.encode() not in (tmp_path / "log").read_bytes()
