"""The webhook receiver: MLflow tells of a moved alias, and ledger and aliases are reconciled at once.

The receiver answers first and reconciles in one thread, so that a slow registry holds up no delivery; what
arrives meanwhile asks for one more look, however much it is. A lost delivery costs nothing but time: the
loop and `floodmark reconcile` look by themselves.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infra.mlflow_webhook import MOST_BYTES, RejectedError, Verifier
from training.errors import FloodmarkError

LOG = logging.getLogger("floodmark.listen")


def receiver(model: str, verifier: Verifier, reconcile: Callable[[], object]) -> Starlette:
    """Return the ASGI application: `POST /mlflow` takes deliveries, `GET /health` says that it lives.

    `reconcile` is called in a thread, never twice at a time; what it raises is logged and changes no answer.
    """
    wanted = asyncio.Event()

    async def take(request: Request) -> Response:
        try:
            event = verifier.verify(request.headers, await read(request))
        except RejectedError as error:
            LOG.warning("a delivery was refused: %s", error)
            return JSONResponse({"refused": str(error)}, status_code=error.status)
        if event.model != model or event.alias != "champion":
            return Response(status_code=HTTPStatus.NO_CONTENT)
        wanted.set()
        return JSONResponse({"accepted": True}, status_code=HTTPStatus.ACCEPTED)

    async def health(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def work() -> None:
        while True:
            await wanted.wait()
            wanted.clear()
            try:
                await asyncio.to_thread(reconcile)
            except FloodmarkError as error:
                LOG.warning("not reconciled; the next look will try again: %s", error)
            except Exception:
                LOG.exception("not reconciled; the next look will try again")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        wanted.set()  # whatever was missed while nobody listened
        worker = asyncio.create_task(work())
        yield
        worker.cancel()

    routes = [Route("/mlflow", take, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan)


async def read(request: Request) -> bytes:
    """Return the body, of which never more than allowed is kept.

    Raises:
        RejectedError: It is larger.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            told = f"more than {MOST_BYTES} bytes"
            raise RejectedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, told)
    return body
