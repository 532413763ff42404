"""A reviewer promotes, is refused, and takes a champion away in MLflow's own pages, with clicks and keys."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from artifacts import build_artifact, training_request
from command import FLOODMARK, environment, floodmark, status
from flows.installation import Installation
from histories import judged, settled, trained
from infra.settings import load_settings
from receiver import Receiver, receiver
from tracking_server import serving
from training.types import PromotionOutcome

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

SECRETS = {"MLFLOW_WEBHOOK_SECRET": "a secret of this test", "ALERT_WEBHOOK_URL": ""}
SECONDS = 60  # within which a browser on a busy machine has shown what it was asked for
WEBHOOKS = {
    "MLFLOW_WEBHOOK_CACHE_TTL": "1",  # a new webhook is noticed after a minute otherwise
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
}


@dataclass
class Reviewer:
    """A person before the page of the registered model."""

    page: "Page"
    url: str

    def set_champion(self, version: str) -> None:
        """Add the alias to a version: MLflow takes it from the one that had it."""
        dialog = self._aliases_of(version)
        box = dialog.get_by_role("combobox")
        box.click()
        box.press_sequentially("champion")
        box.press("Enter")
        self._save(dialog)

    def remove_champion(self, version: str) -> None:
        """Delete the alias from the version that has it."""
        dialog = self._aliases_of(version)
        dialog.get_by_text("champion", exact=False).first.wait_for()
        dialog.get_by_role("combobox").press("Backspace")
        self._save(dialog)

    def _aliases_of(self, version: str) -> "Locator":
        self.page.goto(self.url)
        self.page.reload()  # the page does not hear of aliases that others moved
        row = self.page.get_by_role("row").filter(
            has=self.page.get_by_text(re.compile(f"^Version {version}$"))
        )
        row.wait_for()
        row.get_by_role("button").last.click()
        return self.page.get_by_role("dialog")

    def _save(self, dialog: "Locator") -> None:
        with self.page.expect_response(lambda response: "alias" in response.url) as response:
            dialog.get_by_role("button", name="Save aliases").click()
        assert response.value.ok, response.value.text()


@pytest.fixture
def reviewer(place: "Place", browser: "Browser") -> Iterator[Reviewer]:
    page = browser.new_page()
    page.set_default_timeout(SECONDS * 1_000)
    yield Reviewer(page=page, url=f"{place.server}/#/models/floodmark")
    page.close()


@dataclass
class Place:
    """A tracking server, a home whose ledger knows four versions, and a receiver of alerts."""

    server: str
    home: Path
    installation: Installation
    alerts: Receiver

    @property
    def variables(self) -> dict[str, str]:
        return {**SECRETS, "ALERT_WEBHOOK_URL": self.alerts.url}

    def champion(self) -> tuple[str | None, str | None]:
        """By the alias, and by the ledger."""
        return self.installation.registry.aliases().champion, self.installation.ledger.load().champion


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Version 1 was followed by champion 2; 3 was refused by its gates, and 4 waits for a person."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    with receiver() as alerts, serving(tmp_path, WEBHOOKS) as (server, _):
        (tmp_path / "floodmark.toml").write_text(
            f"tracking_uri = '{server}'\n[alerts]\nwebhook_url_variable = 'ALERT_WEBHOOK_URL'\n"
        )
        installation = Installation(load_settings(None, {"home": home}))
        for seed in range(4):
            request = training_request(seed=seed, model="floodmark")
            result = build_artifact(tmp_path / f"artifact-{seed}", request)
            installation.registry.register(request, result, reason="test")
        for version, outcome, before in (
            ("1", PromotionOutcome.PROMOTED, None),
            ("2", PromotionOutcome.PROMOTED, "1"),
            ("3", PromotionOutcome.REFUSED, "2"),
            ("4", PromotionOutcome.UNDECIDED, "2"),
        ):
            for record in (trained(version, "a"), judged(version, outcome, before), settled(version)):
                installation.ledger.append(installation.ledger.load(), record)
        installation.registry.set_alias("champion", "2")
        installation.registry.set_alias("challenger", "4")
        yield Place(server=server, home=home, installation=installation, alerts=alerts)


@pytest.fixture
def listener(place: Place) -> Iterator["subprocess.Popen[str]"]:
    """`floodmark listen`, to which MLflow sends its webhooks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    announced = ["--port", port, "--announce", f"http://127.0.0.1:{port}/mlflow"]
    with (place.home.parent / "listen.log").open("w") as log:
        process = subprocess.Popen(
            [FLOODMARK, "listen", *announced, "--home", place.home],
            cwd=place.home.parent,
            env={**environment(place.variables), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            assert lines[1].startswith("listening at"), (place.home.parent / "listen.log").read_text()
            yield process
        finally:
            process.terminate()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_what_a_reviewer_does_in_mlflow_takes_effect(
    place: Place, listener: "subprocess.Popen[str]", reviewer: Reviewer
) -> None:
    reviewer.set_champion("1")
    until(lambda: place.champion() == ("1", "1"))

    reviewer.set_champion("3")
    until(lambda: len(place.installation.ledger.load().promotions) == 6)
    until(lambda: place.champion() == ("1", "1"))
    until(lambda: any("has not passed its gates" in message["text"] for message in place.alerts.messages))

    reviewer.remove_champion("1")
    until(lambda: place.champion() == ("2", "2"))

    listener.terminate()
    assert listener.wait(timeout=SECONDS) == 0
    reviewer.set_champion("4")
    assert place.champion() == ("4", "2")
    done = floodmark("reconcile", "--home", place.home, cwd=place.home.parent, env=place.variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "version 4  promoted by person: the alias champion was moved in MLflow" in done.stdout
    assert place.champion() == ("4", "4")
    aliases = place.installation.registry.aliases()
    assert (aliases.previous, aliases.challenger) == ("2", None)

    for promotion in status(place.home)["promotions"][4:]:
        assert promotion["by"] == "person", json.dumps(promotion)
    assert [promotion["outcome"] for promotion in status(place.home)["promotions"][4:]] == [
        "promoted",
        "put_back",
        "rolled_back",
        "promoted",
    ]
    assert SECRETS["MLFLOW_WEBHOOK_SECRET"] not in (place.home.parent / "listen.log").read_text()
