"""Alerts through the real loop, through Prefect's blocks, and the commands about them."""

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from prefect.blocks.system import Secret
from pydantic import SecretStr

from command import floodmark
from flows.cli import main
from flows.installation import Installation
from flows.loop import take
from flows.notify import block_sender
from histories import bootstrap, quarantined, window
from infra.ledger import Ledger
from infra.local_store import LocalStore
from infra.prefect_server import API_URL
from infra.settings import load_settings
from monitoring.history import History
from monitoring.next_step import TakeWindow
from monitoring.records import AlertRecord, ChannelOutcome, FailureRecord, SnoozeRecord
from prefect_api import prefect_api
from receiver import CLOSE, receiver
from test_channels import MESSAGE
from training.errors import FloodmarkError

pytestmark = pytest.mark.filterwarnings(
    "ignore:'imghdr' is deprecated:DeprecationWarning"  # Apprise imports it with its e-mail plug-in
)

VARIABLE = "ALERT_WEBHOOK_URL"
DEAD = ChannelOutcome(channel="webhook", delivered=False, answer="HTTP 500")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home beside a configuration with a webhook."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "floodmark.toml").write_text(
        f"time_column = 'at'\n[alerts]\nwebhook_url_variable = '{VARIABLE}'\n"
    )
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a temporary Prefect server, whose database is in a home."""
    with prefect_api(tmp_path_factory.mktemp("prefect")) as url:
        yield url


def write_day(source: Path, day: int, *, times: str) -> None:
    rows = pd.DataFrame({times: pd.date_range(f"2026-01-0{day}", periods=60, freq="h", tz="UTC")})
    rows = rows.assign(x=[row * day for row in range(60)], y=[f"{row % 3}" for row in range(60)])
    rows.to_csv(source / f"day-{day}.csv", index=False)


def test_two_unusable_windows_are_one_incident_through_every_channel(home: Path, api: str) -> None:
    source = home.parent / "incoming"
    source.mkdir()
    for day, times in ((1, "at"), (2, "wrong"), (3, "wrong"), (4, "at")):
        write_day(source, day, times=times)
    with (home.parent / "floodmark.toml").open("a") as configuration:
        configuration.write("blocks = ['slack-webhook/on-call']\n")

    with receiver(CLOSE, CLOSE, CLOSE, 200) as hook, receiver() as slack:  # three tries are one attempt
        SlackWebhook(url=SecretStr(slack.url.replace("http", "json"))).save("on-call")
        with pytest.raises(FloodmarkError, match="no block slack-webhook/nobody"):
            block_sender("slack-webhook/nobody")(MESSAGE)
        Secret(value=SecretStr("swordfish")).save("word")
        with pytest.raises(FloodmarkError, match="a Secret, which notifies nobody"):
            block_sender("secret/word")(MESSAGE)
        done = floodmark(
            "run", source, "--home", home, cwd=home.parent, env={API_URL: api, VARIABLE: hook.url}
        )
        assert (done.returncode, done.stderr) == (0, "")

    assert [message["stage"] for message in hook.messages] == ["opened"] * 4 + ["resolved"]
    assert len({message["id"] for message in hook.messages}) == 2
    opened, resolved = hook.messages[0], hook.messages[-1]
    assert opened["windows"] == ["day-2"]
    assert opened["command"] == f"floodmark run {source} --time-column at --home {home} --model floodmark"
    assert opened["link"] == f"{home}/reports/floodmark/day-2.html"
    assert "day-2 was set aside" in Path(opened["link"]).read_text()
    assert resolved["link"] == f"{home}/reports/floodmark/day-3.html", "the newest of its windows"
    assert resolved["text"].startswith("Resolved, window day-4 is valid: 2 windows from day-2 to day-3")
    assert [message["title"] for message in slack.messages] == [
        "floodmark floodmark: data opened",
        "floodmark floodmark: channel opened",
        "floodmark floodmark: channel resolved",
        "floodmark floodmark: data resolved",
    ]
    assert "warning: alert data-4 opened: webhook failed: no answer: RemoteProtocolError" in done.stdout
    assert "slack-webhook/on-call answered accepted" in done.stdout
    assert done.stdout.index("day-3  quarantined") < done.stdout.index("day-4  bootstrap")
    ledger = "".join(path.read_text() for path in (home / "state").rglob("*.json"))
    assert "swordfish" not in ledger + done.stdout
    with closing(sqlite3.connect(Path(os.environ["PREFECT_HOME"]) / "prefect.db")) as database:
        emitted = database.execute("SELECT payload FROM events WHERE event = 'floodmark.alert.failed'")
        assert [json.loads(payload) for (payload,) in emitted] == [
            {"incident": opened["incident"], "channel": "webhook"}
        ]


def test_a_step_that_fails_again_is_told_before_the_failure_ends_the_run(
    home: Path, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del api
    with receiver() as there:
        monkeypatch.setenv(VARIABLE, there.url)
        settings = load_settings(None, {"home": home})
        installation = Installation(settings)
        gone = TakeWindow(window=window("gone"))
        history = installation.ledger.append(History(), FailureRecord(step=str(gone), error="was gone"))
        (home.parent / "empty").mkdir()
        with pytest.raises(FloodmarkError, match=r"gone\.csv"):
            take(installation, installation.source("empty"), history, gone, lambda *_: None)
    assert [message["text"].split(":")[0] for message in there.messages] == ["The step window failed 2 times"]


def test_a_block_that_fails_is_told_without_its_url(api: str) -> None:
    del api
    with receiver(500) as there:
        SlackWebhook(url=SecretStr(there.url.replace("http", "json"))).save("dead")
        CustomWebhookNotificationBlock(name="x", url=there.url, json_data={"text": "{{body}}"}).save("dead")
        for name in ("slack-webhook/dead", "custom-webhook/dead"):
            with pytest.raises(FloodmarkError, match="500") as error:
                block_sender(name)(MESSAGE)
            assert "swordfish" not in str(error.value)
    assert there.messages[1]["text"].startswith("Window a drifted: “flow” moved\nsince 2026-01-01 00:00 UTC")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["floodmark", *arguments, "--home", "home"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_commands_about_a_dead_channel(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.of(LocalStore(home), "floodmark")
    for record in (
        bootstrap("a"),
        quarantined("b"),
        AlertRecord(incident="data-2", stage="opened", outcomes=(DEAD,)),
    ):
        ledger.append(ledger.load(), record)
    assert call(monkeypatch, "status") == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "window b could not be used: quarantined: unreadable; next: floodmark run SOURCE" in said
    assert "the alert channel webhook does not take messages: HTTP 500; next: floodmark alerts test" in said

    with receiver(404, 200) as there:
        monkeypatch.setenv(VARIABLE, there.url)
        assert call(monkeypatch, "alerts", "test") == 1
        assert capsys.readouterr().out == "webhook: failed, HTTP 404\n"
        assert call(monkeypatch, "alerts", "test") == 0
        assert capsys.readouterr().out == "webhook: ok, HTTP 200\n"
        assert there.messages[0]["kind"] == "test"
    assert call(monkeypatch, "status", "--json") == 0
    found = json.loads(capsys.readouterr().out)["incidents"]
    assert [(incident["id"], incident["resolution"]) for incident in found] == [
        ("data-2", ""),
        ("channel-3-webhook", "it answers again"),
    ]


def test_snooze(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger.of(LocalStore(home), "floodmark")
    ledger.append(ledger.load(), quarantined("a"))
    because = ("--reason", "known")
    for wrong in ("2", "0d", "-1d", "soon", "10s"):
        assert call(monkeypatch, "snooze", "--for", wrong, *because) == 2
        assert f"'{wrong}' is no duration" in capsys.readouterr().err
    assert call(monkeypatch, "snooze", "--for", "2d", "--reason", " ") == 2
    assert "it is blank" in capsys.readouterr().err
    assert call(monkeypatch, "snooze", "drift-1", "--for", "2d", *because) == 2
    assert "open are data-1; nothing was snoozed" in capsys.readouterr().err
    assert len(ledger.load().entries) == 1

    assert call(monkeypatch, "snooze", "data-1", "--for", "1d12h", *because) == 0
    assert call(monkeypatch, "snooze", "--for", "2d", *because) == 0
    assert "snoozed until" in capsys.readouterr().out
    records = [entry.record for entry in ledger.load().entries[1:]]
    for record, days in zip(records, (1.5, 2.0), strict=True):
        assert isinstance(record, SnoozeRecord)
        assert (record.incidents, record.reason) == (("data-1",), "known")
        assert (record.until - datetime.now(UTC)).total_seconds() / 86_400 == pytest.approx(days, abs=0.01)
    assert call(monkeypatch, "status") == 0
    assert ", snoozed until " in capsys.readouterr().out


def test_without_a_channel_there_is_nothing_to_test(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home.parent / "floodmark.toml").unlink()
    assert call(monkeypatch, "alerts", "test") == 2
    assert "no channel for alerts is configured" in capsys.readouterr().err
