"""The webhook against a real server that answers, refuses, hangs and closes."""

import hashlib
import hmac
from pathlib import Path

import pytest

from histories import START
from infra.channels import AlertSettings, deliver, webhook
from infra.settings import load_settings
from monitoring.alerts import Message
from monitoring.records import ChannelOutcome
from receiver import CLOSE, DRIP, HANG, receiver
from training.errors import ConfigurationError

SETTINGS = AlertSettings(
    webhook_url_variable="ALERT_WEBHOOK_URL",
    webhook_secret_variable="ALERT_SECRET",  # noqa: S106 - a variable's name
)
MESSAGE = Message(
    id="pumps/drift-1/opened/20260101T000000.000000Z",
    model="pumps",
    incident="drift-1",
    kind="drift",
    stage="opened",
    text="Window a drifted: “flow” moved",
    since=START,
    resolved_at=None,
    windows=("a",),
    link="https://pages.example/pumps/a.html",
    command="floodmark status",
    channels=("webhook",),
)


def outcome_at(monkeypatch: pytest.MonkeyPatch, url: str, deadline_s: float = 9.0) -> ChannelOutcome:
    monkeypatch.setenv("ALERT_WEBHOOK_URL", url)
    monkeypatch.setenv("ALERT_SECRET", "swordfish")
    [outcome] = deliver({"webhook": webhook(SETTINGS)}, MESSAGE, deadline_s=deadline_s)
    assert "swordfish" not in outcome.answer
    assert "127.0.0.1" not in outcome.answer
    return outcome


def test_a_message_arrives_once_as_documented_and_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as there:
        outcome = outcome_at(monkeypatch, there.url)
    assert outcome == ChannelOutcome(channel="webhook", delivered=True, answer="HTTP 200")
    assert there.messages == [
        {
            "schema_version": 1,
            "id": MESSAGE.id,
            "model": "pumps",
            "incident": "drift-1",
            "kind": "drift",
            "stage": "opened",
            "text": "Window a drifted: “flow” moved",
            "since": "2026-01-01T00:00:00+00:00",
            "resolved_at": None,
            "windows": ["a"],
            "link": "https://pages.example/pumps/a.html",
            "command": "floodmark status",
        }
    ]
    [headers], [body] = there.headers, there.bodies
    assert headers["Idempotency-Key"] == MESSAGE.id
    signed = hmac.new(b"swordfish", body, hashlib.sha256).hexdigest()
    assert headers["X-Floodmark-Signature"] == f"sha256={signed}"


@pytest.mark.parametrize("first", [500, 503, 429, CLOSE])
def test_what_may_pass_is_tried_again_under_the_same_id(
    monkeypatch: pytest.MonkeyPatch, first: int | str
) -> None:
    with receiver(first, 202) as there:
        assert outcome_at(monkeypatch, there.url).answer == "HTTP 202"
    assert [headers["Idempotency-Key"] for headers in there.headers] == [MESSAGE.id] * 2


@pytest.mark.parametrize(
    ("answer", "said", "requests"),
    [
        (500, "HTTP 500", 3),
        (CLOSE, "no answer: RemoteProtocolError", 3),
        (404, "HTTP 404", 1),
        (302, "HTTP 302", 1),
    ],
)
def test_a_channel_that_stays_dead_is_an_outcome(
    monkeypatch: pytest.MonkeyPatch, answer: int | str, said: str, requests: int
) -> None:
    with receiver(answer) as there:
        outcome = outcome_at(monkeypatch, there.url)
    assert (outcome.delivered, outcome.answer, len(there.bodies)) == (False, said, requests)


def test_a_hanging_server_costs_its_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(HANG) as there:
        outcome = outcome_at(monkeypatch, there.url)
    assert (outcome.delivered, outcome.answer) == (False, "no answer: ReadTimeout")


def test_a_server_without_end_stops_at_the_deadline_and_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiver(DRIP) as endless:
        monkeypatch.setenv("ALERT_WEBHOOK_URL", endless.url)
        monkeypatch.setenv("ALERT_SECRET", "swordfish")
        senders = {
            "webhook": webhook(SETTINGS),
            "other": lambda _: "accepted",
            "broken": lambda _: str(1 / 0),
        }
        outcomes = deliver(senders, MESSAGE, deadline_s=0.5)
    assert [(outcome.delivered, outcome.answer) for outcome in outcomes] == [
        (False, "no answer within 0.5 s"),
        (True, "accepted"),
        (False, "ZeroDivisionError"),
    ]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "the environment variable ALERT_WEBHOOK_URL is not set"),
        ("swordfish", "its URL is not valid"),
        ("http://host:swordfish", "its URL is not valid"),
        ("http://127.0.0.1:9/swordfish", "no answer: ConnectError"),
    ],
)
def test_a_wrong_url_is_an_outcome_that_does_not_repeat_it(
    monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    assert outcome_at(monkeypatch, url) == ChannelOutcome(channel="webhook", delivered=False, answer=said)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("webhook_url_variable = 'https://hooks.example/swordfish'", "names an environment variable"),
        ("webhook_url_variable = 'FLOODMARK_HOOK'", "not beginning with FLOODMARK_"),
        ("webhook_secret_variable = 'ALERT_SECRET'", "without a webhook_url_variable"),
        ("blocks = ['on call']", "named as type/name"),
        ("page_url = 'https://me:swordfish@pages.example'", "no credentials"),
        ("escalate_after = 0", "escalate_after is 0"),
        ("webhook = 'x'", "unknown key webhook"),
    ],
)
def test_wrong_configuration(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "wrong.toml").write_text(f"[alerts]\n{lines}\n")
    with pytest.raises(ConfigurationError) as error:
        load_settings(tmp_path / "wrong.toml", {})
    assert said in str(error.value)
    assert "swordfish" not in str(error.value)
