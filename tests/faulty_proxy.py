"""A TCP proxy on loopback that can be told to delay, to refuse, to break off, or to answer HTTP 503."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

Mode = Literal["passing", "delaying", "refusing", "breaking", "unavailable"]

DELAY_S = 1.5
BYTES_BEFORE_BREAK = 200
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(slots=True)
class FaultyProxy:
    """Forwards to `target`, a port on loopback, in the way that `mode` says at the moment."""

    target: int
    port: int = 0
    mode: Mode = "passing"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            if self.mode == "unavailable":
                await reader.read(65_536)
                writer.write(UNAVAILABLE)
                await writer.drain()
            elif self.mode != "refusing":
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
                await asyncio.wait(
                    [
                        asyncio.create_task(self._copy(reader, far_writer)),
                        asyncio.create_task(self._copy(far_reader, writer)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                far_writer.close()
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                match self.mode:
                    case "delaying":
                        await asyncio.sleep(DELAY_S)
                    case "breaking":
                        writer.write(data[:BYTES_BEFORE_BREAK])
                        break
                    case "refusing" | "unavailable":  # also for connections that are kept alive
                        break
                    case _:
                        pass
                writer.write(data)
                await writer.drain()


@contextmanager
def proxying(target: int) -> Iterator[FaultyProxy]:
    """Yield a proxy for a port on loopback, served by a thread until the end."""
    proxy, ready, loop = FaultyProxy(target=target), threading.Event(), asyncio.new_event_loop()

    async def start() -> None:
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)  # noqa: SLF001 - of this module
        proxy.port = server.sockets[0].getsockname()[1]
        ready.set()

    def serve() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
