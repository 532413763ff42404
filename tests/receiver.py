"""A real HTTP server on loopback that takes alerts, and answers as it is told to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

HANG, CLOSE, DRIP = "hang", "close", "drip"


@dataclass
class Receiver:
    """`answers` are taken in turn, the last one for good: a status, or one of `HANG`, `CLOSE`, `DRIP`."""

    answers: list[int | str] = field(default_factory=lambda: [200])
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    ended: Event = field(default_factory=Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/swordfish"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.headers.append(dict(request.headers))
        self.bodies.append(request.rfile.read(int(request.headers["Content-Length"])))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == HANG:
            self.ended.wait(60)
        elif answer == DRIP:
            for byte in b"HTTP/1.1 200 OK\r\nX-Endless: " + b"x" * 1_000:
                request.wfile.write(bytes([byte]))
                if self.ended.wait(0.1):
                    return
        elif isinstance(answer, int):
            request.send_response(answer)
            request.send_header("Content-Length", "0")
            request.end_headers()


@contextmanager
def receiver(*answers: int | str) -> Iterator[Receiver]:
    """Run a receiver until the block ends."""
    made = Receiver(answers=list(answers) or [200])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.answer(self)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.port = server.server_port
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        made.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
