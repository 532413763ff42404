"""The HTTP scorer: an app that answers with the champion's scores, and the server that it runs in."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from infra.http_answers import BODY, Feature, Problem, Readiness, Scores, ServedModel
from infra.score_request import MAX_BODY_BYTES, TooLargeError, UnknownContentError, read_request
from infra.scorer_metrics import ScorerMetrics
from infra.served_champion import ChampionFollower, Served
from monitoring.plain_columns import context_frame, encode_columns
from training.errors import FloodmarkError, InvalidWindowError

SMALL_BODY_BYTES = 16 << 10
"""What is scored in a millisecond or two, so that handing it to a thread would cost more."""
ALLOWED_STATUS = {TooLargeError: 413, UnknownContentError: 415, InvalidWindowError: 422}
NOT_READY = Problem(
    error="there is no champion yet", hint="ask GET /health/ready for the reason, and try again"
)


class ScoresNotFiniteError(FloodmarkError):
    """A model gave scores that are no numbers, which are no answer."""


def build_app(follower: ChampionFollower, model: str) -> FastAPI:
    """Build the app; `follower` runs as long as it does."""
    metrics = ScorerMetrics(follower, model)

    @asynccontextmanager
    async def following(_: FastAPI) -> AsyncIterator[None]:
        follower.start()
        yield
        await asyncio.to_thread(follower.stop)

    app = FastAPI(title=f"Anomaly scores of {model}", version="1", lifespan=following)
    problems: dict[int | str, dict[str, Any]] = {
        status: {"model": Problem} for status in (413, 415, 422, 500, 503)
    }

    @app.post("/score", response_model=Scores, responses=problems, openapi_extra=BODY)
    async def score(request: Request) -> Response:
        """Score rows: JSON by rows or by columns, Parquet, or an Arrow stream."""
        started = time.perf_counter()
        answer, flags = await answer_to(request, follower, model)
        metrics.requests.labels(str(answer.status_code)).inc()
        metrics.rows.inc(len(flags))
        metrics.alerts.inc(int(flags.sum()))
        metrics.seconds.observe(time.perf_counter() - started)
        return answer

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        """Answer while the process does."""
        return {"status": "alive"}

    @app.get("/health/ready", response_model=Readiness, responses={503: {"model": Readiness}})
    async def ready() -> Response:
        """Answer 200 while a champion serves, followed or not, and 503 before there is one."""
        found = readiness(follower, model)
        return _json(200 if found.ready else 503, found)

    @app.get("/model", response_model=ServedModel, responses={503: {"model": Problem}})
    async def served_model() -> Response:
        """Describe the version that serves, and the features that it needs."""
        served = follower.state.served
        return _json(503, NOT_READY) if served is None else _json(200, described(served, model))

    @app.get("/metrics", response_class=Response)
    async def prometheus() -> Response:
        """Answer Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


async def answer_to(
    request: Request, follower: ChampionFollower, model: str
) -> tuple[Response, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the answer to a request for scores, and the flags of its rows: none where it is refused."""
    none = np.zeros(0, dtype=bool)
    try:
        body = await read_body(request)
        served = follower.state.served  # once: scores and threshold are those of one version
        if served is None:
            return _json(503, NOT_READY), none
        content_type = request.headers.get("content-type", "")
        if len(body) <= SMALL_BODY_BYTES:
            scores = score_body(served, body, content_type)
        else:
            scores = await asyncio.to_thread(score_body, served, body, content_type)
    except ClientDisconnect:
        return Response(status_code=499), none  # nobody reads it; nginx counts it by this number
    except FloodmarkError as error:
        return _json(
            ALLOWED_STATUS.get(type(error), 500), Problem(error=error.message, hint=error.hint)
        ), none
    threshold = served.scorer.threshold.value
    flags = scores > threshold
    answer = {
        "model": model,
        "model_version": served.version,
        "threshold": threshold,
        "anomaly_score": scores,
        "is_anomaly": flags,
    }
    content = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json"), flags


def score_body(
    served: Served, body: bytes, content_type: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a finite score per row of a request's body, whose rows are read as sequences where a model does.

    Raises:
        InvalidWindowError: The body cannot be read or scored.
        TooLargeError: It has too many rows.
        UnknownContentError: It is of a type that is not read.
        ScoresNotFiniteError: The model gave something else than numbers.
    """
    scorer = served.scorer
    asked = read_request(body, content_type, scorer.asked)
    features = encode_columns(asked.rows, asked.columns, scorer)
    stretches = scorer.stretches(context_frame(asked.columns, scorer)) if scorer.sequences else None
    scores = scorer.score_features(features, stretches)
    if broken := int((~np.isfinite(scores)).sum()):
        raise ScoresNotFiniteError(
            f"{broken} of {len(scores)} scores of version {served.version} are not finite",
            hint="`floodmark rollback` makes the previous version the champion again",
        )
    return scores


async def read_body(request: Request) -> bytes:
    """Read the whole body.

    Raises:
        TooLargeError: It has more than `MAX_BODY_BYTES`; no more than that is read.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise TooLargeError(
                f"the body has more than {MAX_BODY_BYTES} bytes", hint="send the rows in several requests"
            )
        parts.append(part)
    return b"".join(parts)


def readiness(follower: ChampionFollower, model: str) -> Readiness:
    """Tell what serves and whether the alias is followed."""
    served, reason = follower.state.served, follower.trouble()
    return Readiness(
        ready=served is not None,
        model=model,
        model_version=served.version if served else None,
        since=served.since if served else None,
        following=reason is None,
        reason=reason,
        confirmed_seconds_ago=follower.confirmed_seconds_ago(),
    )


def described(served: Served, model: str) -> ServedModel:
    """Describe a version."""
    threshold = served.scorer.threshold
    return ServedModel(
        model=model,
        model_version=served.version,
        since=served.since,
        detector=served.request.detector.name,
        threshold=threshold.value,
        threshold_method=threshold.method,
        target_alert_rate=threshold.target_alert_rate,
        features=[Feature(name=column.name, kind=column.kind) for column in served.scorer.schema.features],
        sequence_columns=served.scorer.context,
    )


def _json(status: int, content: object) -> Response:
    return Response(to_json(content), status_code=status, media_type="application/json")
