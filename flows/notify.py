"""The flow `notify`: a message about an incident goes to its channels, and what they did is recorded."""

import asyncio
import inspect
import re
from collections.abc import Iterable
from datetime import UTC

import httpx
from prefect import flow
from prefect.blocks.abstract import NotificationBlock, NotificationError
from prefect.blocks.core import Block

from flows.events import emit
from infra.channels import WEBHOOK, Sender, deliver, webhook
from infra.settings import Settings
from monitoring.alerts import Message
from monitoring.records import AlertRecord
from training.errors import ConfigurationError, RetryableError

URI = re.compile(r"\S+://\S+")


@flow(name="notify", flow_run_name="notify: {message.incident} {message.stage}")
def notify(settings: Settings, message: Message) -> AlertRecord:
    """Send a message and record what each channel answered; a dead channel is an outcome, no error."""
    record = send(settings, message)
    for outcome in record.outcomes:
        if not outcome.delivered:
            emit(settings, "floodmark.alert.failed", incident=message.incident, channel=outcome.channel)
    return record


def send(settings: Settings, message: Message) -> AlertRecord:
    """Offer a message to its channels once, and return what became of it."""
    outcomes = deliver(senders(settings, message.channels), message)
    return AlertRecord(incident=message.incident, stage=message.stage, outcomes=outcomes)


def senders(settings: Settings, channels: Iterable[str]) -> dict[str, Sender]:
    """Return the senders of configured channels by name."""
    return {
        channel: webhook(settings.alerts) if channel == WEBHOOK else block_sender(channel)
        for channel in channels
    }


def block_sender(name: str) -> Sender:
    """Return the sender through the Prefect notification block `type/name`."""

    def send(message: Message) -> str:
        try:
            block = Block.load(name)
        except ValueError as error:
            raise ConfigurationError(f"Prefect has no block {name}, or it cannot be read") from error
        if not isinstance(block, NotificationBlock):
            raise ConfigurationError(f"the block {name} is a {type(block).__name__}, which notifies nobody")
        try:
            with block.raise_on_failure():  # Apprise's blocks would only log it
                answer = block.notify(body=body(message), subject=subject(message))
                if inspect.iscoroutine(answer):  # as the base class declares it; most blocks answer at once
                    asyncio.run(answer)
        except httpx.HTTPStatusError as error:  # its text holds the URL
            raise RetryableError(f"HTTP {error.response.status_code}") from error
        except NotificationError as error:
            told = URI.sub("…", error.log.strip()).splitlines()
            raise RetryableError(told[-1] if told else "refused without a reason") from error
        return "accepted"

    return send


def subject(message: Message) -> str:
    """Return a message's subject line."""
    return f"floodmark {message.model}: {message.kind} {message.stage}"


def body(message: Message) -> str:
    """Return a message as text for people; its last line is for machines that drop repetitions."""
    lines = [
        message.text,
        f"since {message.since.astimezone(UTC):%Y-%m-%d %H:%M} UTC, model {message.model}",
        *([f"report: {message.link}"] if message.link else []),
        f"next: {message.command}",
        f"id: {message.id}",
    ]
    return "\n".join(lines)
