"""Both stores behave alike, S3 on a real server; a scripted one does what no server does on demand."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infra import s3_store
from infra.local_store import LocalStore
from infra.object_store import ObjectNotFoundError, ObjectStore
from infra.s3_store import S3Settings, S3Store, s3_client
from infra.stores import open_store
from s3_server import S3Server
from training.errors import ConfigurationError, FloodmarkError, RetryableError


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No AWS variables but those that a test sets, and no client from the test before."""
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    s3_client.cache_clear()
    yield monkeypatch
    s3_client.cache_clear()


def use(environment: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, environment: pytest.MonkeyPatch) -> ObjectStore:
    """An empty store of each kind."""
    if request.param == "local":
        return LocalStore(tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    use(environment, server.environment)
    return S3Store(server.bucket, f"run/{uuid.uuid4().hex}", S3Settings())


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [item.key for item in store.list(prefix)]


def test_writes_are_read_back_and_replaced(store: ObjectStore) -> None:
    store.write("a/ü +%&=.csv", b"one")
    store.write("a/ü +%&=.csv", b"second")
    store.write("empty", b"")
    assert store.read("a/ü +%&=.csv") == b"second"
    assert store.read("empty") == b""
    assert [(item.key, item.size) for item in store.list()] == [("a/ü +%&=.csv", 6), ("empty", 0)]


def test_a_large_object_comes_back_whole(store: ObjectStore) -> None:
    content = os.urandom(9_000_000)
    store.write("large", content)
    assert store.read("large") == content


def test_a_prefix_is_a_folder(store: ObjectStore) -> None:
    for key in ("data/1", "data/deep/2", "data-old/3", "data.csv", "database", "other"):
        store.write(key, b"x")
    assert keys(store, "data") == keys(store, "data/") == ["data/1", "data/deep/2"]
    assert keys(store, "data/deep") == ["data/deep/2"]
    assert keys(store, "data.csv") == keys(store, "dat") == keys(store, "missing/folder") == []
    assert keys(store) == sorted(["data/1", "data/deep/2", "data-old/3", "data.csv", "database", "other"])


def test_a_store_sees_nothing_beside_its_root(store: ObjectStore) -> None:
    store.write("inner/kept", b"x")
    store.write("inner-not/other", b"x")
    inner = (
        LocalStore(store.folder / "inner")
        if isinstance(store, LocalStore)
        else open_store(f"{store.url}/inner/", S3Settings())
    )
    assert keys(inner) == ["kept"]
    assert inner.read("kept") == b"x"


def test_a_listing_has_many_pages(store: ObjectStore) -> None:
    names = [f"part-{number:04d}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda name: store.write(name, b""), names):
            pass
    assert keys(store) == names


@pytest.mark.parametrize("key", ["absent", "folder", "folder/object/below", "nowhere/absent"])
def test_what_is_absent_is_said_to_be_absent(store: ObjectStore, key: str) -> None:
    store.write("folder/object", b"x")
    with pytest.raises(ObjectNotFoundError, match=re.escape(key)):
        store.read(key)


def test_a_version_changes_with_the_content(store: ObjectStore) -> None:
    store.write("w", b"one")
    (listed,) = store.list()
    assert store.list() == [listed]
    assert store.read("w", version=listed.version) == b"one"
    store.write("w", b"two")
    assert store.list() != [listed]
    with pytest.raises(RetryableError, match="changed after it was listed"):
        store.read("w", version=listed.version)


def test_create_never_overwrites(store: ObjectStore) -> None:
    assert store.create("claims/1", b"mine")
    assert not store.create("claims/1", b"theirs")
    assert store.read("claims/1") == b"mine"
    store.write("claims/2", b"")
    assert not store.create("claims/2", b"theirs")


def test_of_eight_creators_at_once_exactly_one_wins(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        for round_number in range(2):
            together = threading.Barrier(8)

            def claim(
                number: int, key: str = f"claim-{round_number}", gate: threading.Barrier = together
            ) -> bool:
                gate.wait(timeout=10)
                return store.create(key, str(number).encode())

            won = list(pool.map(claim, range(8)))
            assert won.count(True) == 1
            assert store.read(f"claim-{round_number}") == str(won.index(True)).encode()
    assert len(keys(store)) == 2


def test_readers_see_whole_objects_while_they_are_replaced(store: ObjectStore) -> None:
    store.write("w", b"0" * 100_000)
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(store.write, "w", str(number).encode() * 100_000) for number in range(1, 8)]
        seen = [store.read("w") for _ in range(20)]
        for write in writes:
            write.result()
    assert all(len(data) == 100_000 and len(set(data)) == 1 for data in seen)


# --- the local store ---


def test_temporary_files_are_never_listed_and_never_stay(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    during: list[list[str]] = []
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        during.append([*keys(store), f"{len(list(tmp_path.iterdir()))} on disk"])
        real_fsync(descriptor)

    environment.setattr(os, "fsync", fsync)
    store.write("w", b"x")
    assert during[0] == ["1 on disk"]
    environment.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for action in (store.write, store.create):
        with pytest.raises(RetryableError, match="No space left"):
            action("v", b"y")
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_missing_root_is_not_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder, what in ((tmp_path / "absent", "does not exist"), (tmp_path / "file", "is a file")):
        with pytest.raises(ConfigurationError, match=what):
            LocalStore(folder).list()
        with pytest.raises(ConfigurationError, match=what):
            LocalStore(folder).read("w")
    assert LocalStore(tmp_path / "new").create("state/1", b"x")


@pytest.mark.parametrize("key", ["../out", "a/../../out", "a//b", ".", "", "a/.floodmark-tmp-1", "nul\0"])
def test_a_key_stays_inside_the_folder(tmp_path: Path, key: str) -> None:
    store = LocalStore(tmp_path / "root")
    store.write("a/b", b"x")
    for action in (store.read, lambda name: store.write(name, b"x"), lambda name: store.create(name, b"x")):
        with pytest.raises(ConfigurationError, match="not a key"):
            action(key)
    assert keys(LocalStore(tmp_path)) == ["root/a/b"]


def test_a_name_is_a_file_or_a_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("a/b", b"x")
    for action in (store.write, store.create):
        for key in ("a", "a/b/c"):
            with pytest.raises(ConfigurationError):
                action(key, b"x")
    assert keys(store) == ["a/b"]


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w1.csv").write_bytes(b"x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "circle").symlink_to(root)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(root / "pipe")
    assert keys(LocalStore(root)) == ["linked/w1.csv"]


def test_an_unreadable_folder_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    script = (
        "import os, sys; from pathlib import Path; from infra.local_store import LocalStore\n"
        "if os.geteuid() == 0: os.setuid(65534)  # root may read everything\n"
        "LocalStore(Path(sys.argv[1])).list()"
    )
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.name.startswith(("pytest-", "popen-")):  # those that pytest and xdist made
            folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False
    )
    assert "ConfigurationError" in done.stderr
    assert "Permission denied" in done.stderr


# --- the addresses ---


def test_open_store_takes_a_path_or_an_s3_address(tmp_path: Path) -> None:
    settings = S3Settings(region="eu-central-1")
    assert open_store(str(tmp_path), settings) == LocalStore(tmp_path)
    assert open_store("s3://bucket/deep/prefix/", settings) == S3Store("bucket", "deep/prefix", settings)
    assert [open_store(url, settings).url for url in ("s3://bucket", "s3://bucket/p")] == [
        "s3://bucket",
        "s3://bucket/p",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "  ",
        "s3://",
        "s3:///x",
        "s3://UPPER/x",
        "s3://a/x",
        "s3://b@d/x",
        "gs://bucket/x",
        "http://host/x",
        "://",
    ],
)
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not the address of a store"):
        open_store(url, S3Settings())


@pytest.mark.parametrize(
    "endpoint", ["", "localhost:9000", "ftp://host", "http://", "http://user:geheim@host"]
)
def test_a_bad_endpoint_is_refused_without_repeating_it(endpoint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        S3Settings(endpoint_url=endpoint)
    assert "geheim" not in str(caught.value)


def test_a_bad_endpoint_in_the_environment_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "not an address")
    with pytest.raises(ConfigurationError, match="endpoint"):
        open_store("s3://bucket", S3Settings()).list()


# --- what an S3 server refuses ---


def all_verbs(store: ObjectStore) -> Iterator[FloodmarkError]:
    for action in (
        store.list,
        lambda: store.read("w"),
        lambda: store.write("w", b"x"),
        lambda: store.create("w", b"x"),
    ):
        with pytest.raises(FloodmarkError) as caught:
            action()
        yield caught.value


def test_a_missing_bucket_is_a_configuration_error(
    s3_server: S3Server, environment: pytest.MonkeyPatch
) -> None:
    use(environment, s3_server.environment)
    for error in all_verbs(S3Store("no-such-bucket", "p", S3Settings())):
        assert isinstance(error, ConfigurationError)
        assert "no-such-bucket does not exist" in str(error)


@pytest.mark.parametrize("case", ["a stranger", "a wrong secret", "an unknown key", "no credentials"])
def test_refused_access_names_what_to_set(
    s3_server: S3Server, environment: pytest.MonkeyPatch, case: str
) -> None:
    key, secret = {
        "a stranger": (s3_server.stranger_access_key, s3_server.stranger_secret_key),
        "a wrong secret": (s3_server.access_key, "wrong-secret"),
        "an unknown key": ("unknown-key", "wrong-secret"),
        "no credentials": ("", ""),
    }[case]
    use(environment, {**s3_server.environment, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret})
    for error in all_verbs(S3Store(s3_server.bucket, "p", S3Settings())):
        assert isinstance(error, ConfigurationError)
        assert "AWS_ACCESS_KEY_ID" in error.hint
        assert not secret or secret not in str(error)


def test_nobody_listening_is_worth_a_retry(environment: pytest.MonkeyPatch) -> None:
    use(environment, {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"})
    environment.setattr(s3_store, "MAX_ATTEMPTS", 1)
    store = S3Store("bucket", "p", S3Settings(endpoint_url="http://127.0.0.1:1", region="us-east-1"))
    assert all(isinstance(error, RetryableError) for error in all_verbs(store))


# --- a scripted server: what a real one does only by accident ---

Answer = tuple[int, str]


class Script(ThreadingHTTPServer):
    """Gives the answers in turn and keeps the requests; an answer of status 0 hangs up."""

    daemon_threads = True

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.answers = answers
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.stored_metadata = ""


class Scripted(BaseHTTPRequestHandler):
    """One request of the script; a PUT that is answered 0 or 5xx is remembered as stored."""

    server: Script
    protocol_version = "HTTP/1.1"  # boto3 sends `Expect: 100-continue`

    def answer(self) -> None:
        """Give the next answer of the script."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.rfile.read(int(headers.get("content-length", 0)))
        self.server.requests.append((self.command, self.path, headers))
        status, code = self.server.answers.pop(0)
        body = (
            b"" if status < 300 or self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        )
        if self.command == "PUT" and status != 412:
            self.server.stored_metadata = headers.get("x-amz-meta-floodmark-create", "")
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("ETag", '"e"')
        if self.command == "HEAD":
            self.send_header("x-amz-meta-floodmark-create", code or self.server.stored_metadata)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def scripted(environment: pytest.MonkeyPatch, answers: list[Answer]) -> Iterator[tuple[Script, S3Store]]:
    use(environment, {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"})
    with Script(answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        environment.setenv("AWS_ENDPOINT_URL", f"http://localhost:{server.server_port}")
        yield server, S3Store("bucket", "p", S3Settings())
        server.shutdown()
        thread.join()
    s3_client.cache_clear()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((500, "InternalError"), RetryableError),
        ((503, "SlowDown"), RetryableError),
        ((429, "TooManyRequests"), RetryableError),
        ((400, "RequestTimeout"), RetryableError),
        ((0, "hung up"), RetryableError),
        ((403, "AccessDenied"), ConfigurationError),
        ((400, "ExpiredToken"), ConfigurationError),
        ((400, "InvalidRequest"), ConfigurationError),
        ((501, "NotImplemented"), ConfigurationError),
        ((404, "NoSuchBucket"), ConfigurationError),
        ((404, "SomethingElse"), ConfigurationError),
        ((404, "NoSuchKey"), ObjectNotFoundError),
    ],
)
def test_an_answer_means_one_error(
    environment: pytest.MonkeyPatch, answer: Answer, expected: type[FloodmarkError]
) -> None:
    environment.setattr(s3_store, "MAX_ATTEMPTS", 1)
    with scripted(environment, [answer]) as (_, store), pytest.raises(expected) as caught:
        store.read("w")
    assert type(caught.value) is expected


def test_passing_failures_are_retried(environment: pytest.MonkeyPatch) -> None:
    with scripted(environment, [(503, "SlowDown"), (200, "")]) as (server, store):
        store.write("w", b"x")
        assert len(server.requests) == 2


def test_a_conflicting_create_is_repeated(environment: pytest.MonkeyPatch) -> None:
    conflict = (409, "ConditionalRequestConflict")
    with scripted(environment, [conflict, (200, "")]) as (_, store):
        assert store.create("w", b"x")
    with scripted(environment, [conflict, (412, "PreconditionFailed"), (200, "another-token")]) as (_, store):
        assert not store.create("w", b"x")
    with scripted(environment, [conflict] * 4) as (_, store), pytest.raises(RetryableError):
        store.create("w", b"x")


@pytest.mark.parametrize("lost", [(500, "InternalError"), (0, "hung up")])
def test_a_create_whose_answer_was_lost_still_wins(environment: pytest.MonkeyPatch, lost: Answer) -> None:
    with scripted(environment, [lost, (412, "PreconditionFailed"), (200, "")]) as (server, store):
        assert store.create("w", b"x")
        assert [method for method, _, _ in server.requests] == ["PUT", "PUT", "HEAD"]
    with scripted(environment, [lost, (412, "PreconditionFailed"), (200, "another-token")]) as (_, store):
        assert not store.create("w", b"x")


def test_requests_carry_no_checksums_and_the_bucket_in_the_path(environment: pytest.MonkeyPatch) -> None:
    with scripted(environment, [(200, ""), (200, ""), (200, "")]) as (server, store):
        store.write("w", b"x")
        assert store.create("v", b"x")
        assert store.read("w") == b""
    assert [(method, path) for method, path, _ in server.requests] == [
        ("PUT", "/bucket/p/w"),
        ("PUT", "/bucket/p/v"),
        ("GET", "/bucket/p/w"),
    ]
    assert [headers.get("if-none-match") for _, _, headers in server.requests] == [None, "*", None]
    sent = {name for _, _, headers in server.requests for name in headers}
    assert not {name for name in sent if "checksum" in name or name == "x-amz-trailer"}
    assert "authorization" in sent
