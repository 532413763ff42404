"""A server that speaks SQS over HTTP (moto), in a process of its own on loopback; a queue for each test."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

READY_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue whose messages come again after two seconds unless they are deleted."""

    url: str
    client: Any

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.client.send_message(QueueUrl=self.url, MessageBody=body)

    def left(self) -> int:
        """How many messages the queue holds, hidden ones too."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@pytest.fixture(scope="session")
def sqs_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the server; end it by its own handle."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("sqs") / "log"
    program = Path(sys.executable).parent / "moto_server"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=30)


@pytest.fixture
def queue(sqs_endpoint: str) -> Queue:
    client = boto3.session.Session().client(
        "sqs",
        endpoint_url=sqs_endpoint,
        region_name="us-east-1",
        aws_access_key_id="anybody",
        aws_secret_access_key=os.urandom(8).hex(),
    )
    made = client.create_queue(QueueName=uuid.uuid4().hex, Attributes={"VisibilityTimeout": "2"})
    return Queue(url=made["QueueUrl"], client=client)
