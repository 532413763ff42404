"""A person mutes or asks for a retraining, or sends a challenger away: pure records, and the commands."""

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.cli import main
from histories import bootstrap, history, judged, quarantined, scored, settled, trained
from infra.ledger import Ledger
from infra.local_store import LocalStore
from infra.settings import load_settings
from monitoring.history import History
from monitoring.records import MuteRecord, Record, RetrainRecord
from monitoring.retraining import RetrainingPolicy
from monitoring.steering import mute_by_person, refusal_by_person, retraining_by_person, unmute_by_person
from training.errors import ConfigurationError
from training.types import PromotionOutcome

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(("lasts", "hours"), [("90m", 1.5), ("12h", 12), ("3d", 72), ("2w", 336)])
def test_a_mute_lasts_as_long_as_it_is_given(lasts: str, hours: float) -> None:
    record = mute_by_person(NOW, lasts=lasts, until=None, reason="repairs")
    assert (record.until, record.by) == (NOW + timedelta(hours=hours), "person")


def test_a_time_without_a_zone_is_utc() -> None:
    record = mute_by_person(NOW, lasts=None, until=datetime(2026, 1, 11), reason="repairs")  # noqa: DTZ001 - as typer gives it
    assert record.until == datetime(2026, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("lasts", "until", "said"),
    [
        (None, None, "needs one end"),
        ("3d", NOW + timedelta(days=1), "needs one end"),
        ("3", None, "'3' is no duration"),
        ("-3d", None, "is no duration"),
        ("0d", None, "is no duration"),
        (None, NOW, "not after"),
    ],
)
def test_a_mute_without_a_clear_end_is_none(lasts: str | None, until: datetime | None, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        mute_by_person(NOW, lasts=lasts, until=until, reason="repairs")


def test_only_a_mute_in_force_can_be_ended() -> None:
    muted = history(MuteRecord(until=NOW, reason="repairs"))
    assert unmute_by_person(muted, NOW - timedelta(hours=1), reason="done").until is None
    for past, now in ((muted, NOW), (History(), NOW)):
        with pytest.raises(ConfigurationError, match="not muted"):
            unmute_by_person(past, now, reason="done")


def test_a_waiting_challenger_is_sent_away_and_only_that() -> None:
    first = (bootstrap("a"), trained("1", "a"), judged("1"), settled("1"), trained("2", "a"))
    waiting = history(*first, judged("2", PromotionOutcome.UNDECIDED, "1"))
    record = refusal_by_person(waiting, "2", reason="no use")
    assert (record.version, record.outcome, record.by) == ("2", PromotionOutcome.REFUSED, "person")
    after = history(*[entry.record for entry in waiting.entries], record)
    assert (after.challenger, after.champion) == (None, "1")
    for past, version in ((waiting, "1"), (history(*first), "2"), (after, "2")):
        with pytest.raises(ConfigurationError, match="does not wait for a person"):
            refusal_by_person(past, version, reason="no use")


FIRST_MODEL = (bootstrap("a"), bootstrap("b"), trained("1", "a", "b"), judged("1"), settled("1"))
POLICY = RetrainingPolicy(of=2, min_rows=2_500)


def test_a_person_asks_for_a_training_on_the_newest_windows_that_hold_the_rows() -> None:
    muted = MuteRecord(until=NOW, reason="repairs")
    past = history(*FIRST_MODEL, scored("c"), quarantined("d"), scored("e"), muted)
    record = retraining_by_person(past, POLICY, reason="new pump")
    assert (record.windows, record.reason, record.by) == (("b", "c", "e"), "new pump", "person")
    assert retraining_by_person(past, replace(POLICY, min_rows=1), reason="new pump").windows == ("c", "e")
    with pytest.raises(ConfigurationError, match="4 windows together hold 4000 rows"):
        retraining_by_person(past, replace(POLICY, min_rows=4_001), reason="new pump")


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([scored("c", retrain_on=("c",))], "is decided"),
        ([RetrainRecord(windows=("a",), reason="new pump")], "is decided"),
        ([scored("c"), trained("2", "c")], "version 2 waits for its gates"),
        ([trained("2", "a"), judged("2", PromotionOutcome.UNDECIDED, "1")], "version 2 is undecided"),
    ],
)
def test_nobody_asks_for_a_second_training_beside_one(after: list[Record], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        retraining_by_person(history(*FIRST_MODEL, *after), replace(POLICY, min_rows=1), reason="x")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["floodmark", *arguments])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_the_commands_write_the_ledger_and_status_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    ledger = Ledger.of(LocalStore(home), load_settings(None, {}).model)
    ledger.append(ledger.load(), bootstrap("a"))
    of = ("--home", str(home))

    assert run(monkeypatch, "mute", "--for", "3d", "--reason", "pool is repaired", *of) == 0
    assert "no retraining until " in capsys.readouterr().out
    assert run(monkeypatch, "status", "--json", *of) == 0
    mute = json.loads(capsys.readouterr().out)["mute"]
    assert mute["reason"] == "pool is repaired"
    left = datetime.fromisoformat(mute["until"]) - datetime.now(UTC)
    assert timedelta(days=2.9) < left <= timedelta(days=3)
    assert run(monkeypatch, "status", *of) == 0
    assert "pool is repaired" in capsys.readouterr().out

    assert run(monkeypatch, "unmute", "--reason", "done", *of) == 0
    assert run(monkeypatch, "status", "--json", *of) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["mute"] is None
    assert run(monkeypatch, "retrain", "--reason", "new pump", *of) == 0
    assert "a training on a is asked for: new pump" in capsys.readouterr().out
    assert ledger.load().pending_order() == RetrainRecord(windows=("a",), reason="new pump")
    before = len(ledger.load().entries)
    for wrong in (
        ["unmute", "--reason", "again"],
        ["retrain", "--reason", "again"],
        ["retrain", "--reason", " "],
        ["mute", "--for", "soon", "--reason", "x"],
        ["mute", "--for", "1d"],
    ):
        assert run(monkeypatch, *wrong, *of) == 2
    assert len(ledger.load().entries) == before
