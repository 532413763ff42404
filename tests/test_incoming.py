"""How a source is looked at: calls counted on a real S3 server, late, rewritten and vanishing objects."""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.incoming_settings import IncomingSettings
from infra.object_store import ObjectStore
from infra.s3_store import S3Settings, S3Store, s3_client
from infra.source import Source
from infra.tables import CsvFormat
from s3_server import S3Server
from training.errors import RetryableError

OBJECTS = 1_200


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """An empty prefix of a real server."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    s3_client.cache_clear()
    yield S3Store(s3_server.bucket, f"incoming/{uuid.uuid4().hex}", S3Settings())
    s3_client.cache_clear()


def delete(store: S3Store, key: str) -> None:
    s3_client(store.settings).delete_object(Bucket=store.bucket, Key=f"{store.prefix}/{key}")


def source_of(store: ObjectStore, **incoming: float) -> Source:
    return Source(store, CsvFormat(), IncomingSettings(**incoming))


def test_a_look_at_many_objects_costs_one_call_and_a_full_listing_finds_the_rest(bucket: S3Store) -> None:
    names = [f"w{number:05d}" for number in range(OBJECTS)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: bucket.write(f"{name}.csv", b"a\n1\n"), names))
    calls: list[str] = []
    events = s3_client(bucket.settings).meta.events
    events.register("before-send.s3", lambda request, **_: calls.append(request.method))

    def counted(source: Source) -> tuple[int, list[str]]:
        calls.clear()
        found = [window.id for window in source.look()]
        return len(calls), found

    source = source_of(bucket)
    assert counted(source) == (2, names)
    before = source.look()
    assert counted(source) == (1, names)
    assert source.look() is before  # nothing is worked out again

    bucket.write("w99999.csv", b"a\n1\n")
    bucket.write("w01199.csv", b"a\n2\n")  # the newest before it is written again
    assert counted(source) == (1, [*names, "w99999"])
    assert source.look()[OBJECTS - 1].fingerprint != before[-1].fingerprint
    assert source.look()[: OBJECTS - 1] == before[: OBJECTS - 1]

    bucket.write("w00000a.csv", b"a\n1\n")  # far before the newest
    delete(bucket, "w00001.csv")
    late = sorted({*names, "w00000a", "w99999"} - {"w00001"})
    assert counted(source) == (1, [*names, "w99999"])
    assert counted(source_of(bucket, full_listing_seconds=0)) == (2, late)
    with pytest.raises(RetryableError, match=r"w00001\.csv vanished"):
        source.read(before[1])
    assert counted(source) == (2, late)  # what is not as listed makes the next look a full one
    assert source.ignored == []
