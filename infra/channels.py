"""Where alerts go: the webhook, and the bounds within which any channel is tried.

The webhook gets one POST a message, JSON with `schema_version` 1 and the fields of `Message` except
`channels`; times are ISO 8601 in UTC. The header `Idempotency-Key` repeats its `id`, which a repetition
shares. With a secret, `X-Floodmark-Signature` is `sha256=` and the body's HMAC-SHA256 (RFC 2104) in
hexadecimal. Every 2xx is a delivery.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import httpx
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
)

from monitoring.alerts import Message
from monitoring.records import ChannelOutcome
from training.errors import ConfigurationError, FloodmarkError, RetryableError

SCHEMA_VERSION = 1
WEBHOOK = "webhook"
DEADLINE_S = 9.0
"""All channels together have this long to answer; they are tried side by side."""
TIMEOUT = httpx.Timeout(3.0)
TRIES, RETRY_UNTIL_S = 3, 5.0
TOO_MANY_REQUESTS = 429

_VARIABLE = re.compile(r"(?!FLOODMARK_)[A-Z_][A-Z0-9_]*")
_BLOCK = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")

Sender = Callable[[Message], str]
"""Sends a message and returns what was answered; raises otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Where alerts go. URLs and secrets come from the environment variables that are named here.

    Attributes:
        blocks: Prefect notification blocks, as `type/name`.
        page_url: Where the reports are served; messages link to them in the store otherwise.
        escalate_after: Windows after which an incident that is still open is told again.
    """

    webhook_url_variable: str | None = None
    webhook_secret_variable: str | None = None
    blocks: tuple[str, ...] = ()
    page_url: str | None = None
    escalate_after: int = 5

    def __post_init__(self) -> None:
        # The values are not repeated: a URL in the place of a variable's name is a secret.
        for variable in (self.webhook_url_variable, self.webhook_secret_variable):
            if variable is not None and not _VARIABLE.fullmatch(variable):
                raise ValueError(
                    "webhook_…_variable names an environment variable, such as ALERT_WEBHOOK_URL;"
                    " allowed are capitals, digits and _, not beginning with FLOODMARK_"
                )
        if self.webhook_secret_variable is not None and self.webhook_url_variable is None:
            raise ValueError("webhook_secret_variable signs nothing without a webhook_url_variable")
        if not all(_BLOCK.fullmatch(block) for block in self.blocks):
            raise ValueError("blocks are named as type/name, such as slack-webhook/on-call")
        if self.page_url is not None and (
            urlsplit(self.page_url).scheme not in {"http", "https"}
            or "@" in urlsplit(self.page_url).netloc
            or urlsplit(self.page_url).query
        ):
            raise ValueError("page_url begins with http:// or https:// and holds no credentials or query")
        if self.escalate_after < 1:
            raise ValueError(f"escalate_after is {self.escalate_after}; it must be at least 1")

    @property
    def channels(self) -> tuple[str, ...]:
        """The configured channels by name."""
        return (*([WEBHOOK] if self.webhook_url_variable else []), *dict.fromkeys(self.blocks))


def webhook(settings: AlertSettings) -> Sender:
    """Return the sender that posts to the configured webhook, with a few retries."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # its lines below hold the URL

    def send(message: Message) -> str:
        url, secret = _variable(settings.webhook_url_variable), None
        if settings.webhook_secret_variable:
            secret = _variable(settings.webhook_secret_variable)
        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            stop=stop_after_attempt(TRIES) | stop_before_delay(RETRY_UNTIL_S),
            wait=wait_exponential(multiplier=0.3, max=2),
            reraise=True,
        )
        return retrying(_post, url, secret, message)

    return send


def _post(url: str, secret: str | None, message: Message) -> str:
    """Post once.

    Raises:
        RetryableError: No answer, or one that says that another may follow (5xx, 429).
        ConfigurationError: The URL is none, or the answer refuses the message.
    """
    body = payload(message)
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
    if secret is not None:
        headers["X-Floodmark-Signature"] = signature(body, secret)
    try:
        with httpx.stream("POST", url, content=body, headers=headers, timeout=TIMEOUT) as response:
            status = response.status_code  # the answer's body is nobody's business and may be endless
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConfigurationError("its URL is not valid") from error
    except httpx.TransportError as error:
        raise RetryableError(f"no answer: {type(error).__name__}") from error
    if httpx.codes.is_success(status):
        return f"HTTP {status}"
    if status >= httpx.codes.INTERNAL_SERVER_ERROR or status == TOO_MANY_REQUESTS:
        raise RetryableError(f"HTTP {status}")
    raise ConfigurationError(f"HTTP {status}")


def payload(message: Message) -> bytes:
    """Return the webhook's body."""
    fields = {key: value for key, value in asdict(message).items() if key != "channels"}
    return json.dumps({"schema_version": SCHEMA_VERSION, **fields}, default=_iso, allow_nan=False).encode()


def signature(body: bytes, secret: str) -> str:
    """Return what `X-Floodmark-Signature` holds."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def deliver(
    senders: Mapping[str, Sender], message: Message, *, deadline_s: float = DEADLINE_S
) -> tuple[ChannelOutcome, ...]:
    """Send a message through all channels side by side; who has not answered by the deadline has failed.

    A channel that hangs keeps its thread, which ends no later than the process does.
    """
    answers: dict[str, ChannelOutcome] = {}

    def attempt(channel: str, sender: Sender) -> None:
        answers[channel] = _outcome(channel, sender, message)

    threads = [threading.Thread(target=attempt, args=item, daemon=True) for item in senders.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = f"no answer within {deadline_s:g} s"
    return tuple(
        answers.get(channel, ChannelOutcome(channel=channel, delivered=False, answer=late))
        for channel in senders
    )


def _outcome(channel: str, sender: Sender, message: Message) -> ChannelOutcome:
    try:
        return ChannelOutcome(channel=channel, delivered=True, answer=sender(message))
    except FloodmarkError as error:
        answer = error.message
    except Exception as error:  # noqa: BLE001 - whatever a channel does, it stops neither the loop nor the others
        answer = type(error).__name__  # its text may hold a secret URL
    return ChannelOutcome(channel=channel, delivered=False, answer=answer)


def _variable(name: str | None) -> str:
    value = os.environ.get(name or "", "")
    if not value:
        raise ConfigurationError(
            f"the environment variable {name} is not set",
            hint="set it to what the [alerts] section keeps out of the file",
        )
    return value


def _iso(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
