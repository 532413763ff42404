"""How a source is looked at: calls counted on a real S3 server, late, rewritten and vanishing objects."""

import io
import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from infra.incoming_settings import IncomingSettings
from infra.local_store import LocalStore
from infra.object_store import ObjectStore
from infra.s3_store import S3Settings, S3Store, s3_client
from infra.source import Source
from infra.tables import CsvFormat
from s3_server import S3Server
from training.errors import InvalidWindowError, RetryableError

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


def source_of(store: ObjectStore, **incoming: Any) -> Source:  # noqa: ANN401 - numbers, by name
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


def test_a_folder_is_left_for_later_while_its_parts_may_be_arriving(
    bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    for store in (bucket, LocalStore(tmp_path)):
        for key in ("dt=2026-01-05/part-0.csv", "dt=2026-01-06/part-0.csv", "w.csv"):
            store.write(key, b"a\n1\n")
    for folder, age in (("dt=2026-01-05", 100), ("dt=2026-01-06", 10)):
        os.utime(tmp_path / folder / "part-0.csv", (now - age, now - age))
    local = source_of(LocalStore(tmp_path), settle_seconds=60)
    assert [window.id for window in local.look()] == ["dt=2026-01-05", "w"]
    assert local.settling == ["dt=2026-01-06"]
    assert len(local.windows()) == len(source_of(LocalStore(tmp_path)).look()) == 3

    stored = source_of(bucket, settle_seconds=60)
    assert [window.id for window in stored.look()] == ["w"]
    with monkeypatch.context() as patched:  # a clock that is wrong says nothing of the objects' age
        patched.setattr(time, "time", lambda: now + 3_600)
        assert [window.id for window in source_of(bucket, settle_seconds=60).look()] == ["w"]
    patient = source_of(bucket, settle_seconds=0.5)
    time.sleep(2.5)  # S3 says whole seconds
    assert [window.id for window in patient.look()] == ["dt=2026-01-05", "dt=2026-01-06", "w"]
    bucket.write("dt=2026-01-05/part-1.csv", b"a\n2\n")
    assert [window.id for window in stored.look()] == ["w"]


def test_a_window_of_many_parts_is_read_in_their_order_and_names_the_odd_one(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    for number in range(1_500):
        (tmp_path / "w" / f"part-{number}.csv").write_text(f"a,b\n{number},x\n")
    source = source_of(LocalStore(tmp_path))
    frame = source.read(source.windows()[0])
    assert frame["a"].tolist() == list(range(1_500))
    (tmp_path / "w" / "part-700.csv").write_text("a,b\nmany,x\n")
    with pytest.raises(InvalidWindowError, match=r"part-700\.csv .* other types"):
        source.read(source.windows()[0])


def test_a_window_that_would_not_fit_memory_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pd.DataFrame({"a": [0.0] * 1_000_000, "b": 1.0}).to_parquet(buffer)  # 16 MB in a few kilobytes
    parts = {"big/p.parquet": buffer.getvalue(), "parts/1.csv": b"a\n" + b"1.5\n" * 700_000}
    parts["parts/2.csv"], parts["plain.csv"] = parts["parts/1.csv"], b"a\n" + b"1.55555555\n" * 1_000_000
    store = LocalStore(tmp_path)
    for key, data in parts.items():
        store.write(key, data)
    source = source_of(store, max_window_gigabytes=0.01)
    for window in source.windows():
        with pytest.raises(InvalidWindowError) as caught:
            source.read(window)
        assert "max_window_gigabytes" in caught.value.hint
    generous = source_of(store, max_window_gigabytes=0.1)
    assert [len(generous.read(window)) for window in generous.windows()] == [1_000_000, 1_400_000, 1_000_000]
