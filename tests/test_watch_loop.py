"""A bad champion is rolled back by the loop itself, and a challenger in shadow becomes champion."""

from pathlib import Path

import pytest

from artifacts import build_artifact, normal_rows, training_request
from command import floodmark, status
from flows.installation import Installation
from histories import judged, settled, trained
from infra.settings import load_settings
from monitoring.records import PromotionRecord, Record
from receiver import receiver
from training.types import PromotionOutcome

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

VARIABLE = "ALERT_WEBHOOK_URL"
CONFIGURATION = f"""
time_column = "at"
[alerts]
webhook_url_variable = "{VARIABLE}"
[promotion]
shadow_windows = 2
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with three versions: 2 has learned other data than 1 and 3."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "incoming").mkdir()
    (tmp_path / "floodmark.toml").write_text(CONFIGURATION)
    installation = Installation(load_settings(None, {"home": tmp_path / "home"}))
    for seed, shift in enumerate((0.0, 2.0, 0.0)):
        request = training_request(seed=seed, model="floodmark")
        result = build_artifact(tmp_path / f"artifact-{seed}", request, rows=1_000, shift=shift)
        installation.registry.register(request, result, reason="test")
    installation.registry.set_alias("champion", "2")
    append(installation, trained("1", "a"), judged("1"), settled("1"))
    append(installation, trained("2", "b"), judged("2", from_version="1"), settled("2"))
    return tmp_path


def append(installation: Installation, *records: Record) -> None:
    for record in records:
        installation.ledger.append(installation.ledger.load(), record)


def write_windows(place: Path, *names: str) -> None:
    for name in names:
        rows = normal_rows(500, seed=100 + int(name))
        rows.to_parquet(place / "incoming" / f"window-{name}.parquet", index=False)


def test_watch_and_shadow_through_the_loop(place: Path) -> None:
    installation = Installation(load_settings(None, {"home": place / "home"}))
    write_windows(place, "1", "2", "3")
    command = ("run", place / "incoming", "--home", place / "home")
    with receiver() as hook:
        done = floodmark(*command, cwd=place, env={VARIABLE: hook.url})
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "version 2  rolled back to version 1 by watch: on 2 windows after its promotion version 2 left"
        in done.stdout
    )
    shown = status(place / "home")
    assert [window["champion_version"] for window in shown["windows"]] == ["2", "2", "1"]
    assert [window["compared"][0]["drifted"] for window in shown["windows"][:2]] == [[], []]
    assert shown["windows"][2]["compared"] == []
    assert shown["windows"][0]["alerts"] > 2 * shown["windows"][0]["compared"][0]["alerts"]
    aliases = installation.registry.aliases()
    assert (aliases.champion, aliases.previous) == ("1", "2")
    told = [message for message in hook.messages if message["kind"] == "champion"]
    assert [message["stage"] for message in told] == ["opened"]
    assert "version 2 is banned" in told[0]["text"]
    banned = floodmark("promote", "2", "--reason", "again", "--home", place / "home", cwd=place)
    assert banned.returncode == 2
    assert "version 2 was rolled back" in banned.stderr

    shadow = PromotionRecord(
        version="3",
        from_version="1",
        by="gates",
        outcome=PromotionOutcome.UNDECIDED,
        reason="in shadow",
        shadow=True,
    )
    append(installation, trained("3", "c"), shadow, settled("3"))
    installation.registry.set_alias("challenger", "3")
    write_windows(place, "4", "5")
    with receiver() as hook:
        done = floodmark(*command, cwd=place, env={VARIABLE: hook.url})
    assert (done.returncode, done.stderr) == (0, "")
    assert "version 3  promoted by gates: promoted: all 0 gates passed against champion 1" in done.stdout
    assert hook.messages == [], "nobody has to decide, and nothing is wrong"
    last = status(place / "home")["windows"][-1]
    assert (last["compared"][0]["version"], last["compared"][0]["drifted"]) == ("3", [])
    aliases = installation.registry.aliases()
    assert (aliases.champion, aliases.previous, aliases.challenger) == ("3", "1", None)
