"""`floodmark doctor` as a person runs it: on nothing, on broken installations, beside a Prefect server."""

import json
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate

from command import floodmark
from infra.ledger import Ledger
from infra.local_store import LocalStore
from monitoring.records import FailureRecord, PromotionRecord, SettledRecord
from prefect_api import prefect_api
from training.types import PromotionOutcome

PROMOTED = PromotionRecord(
    version="1", from_version=None, by="gates", outcome=PromotionOutcome.PROMOTED, reason="passed"
)


def doctor(folder: Path, env: dict[str, str] | None = None, **settings: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the findings by check; of several of one check, the gravest."""
    done = floodmark(
        "doctor",
        "--json",
        "--home",
        folder / "home",
        cwd=folder,
        env={**(env or {}), **{f"FLOODMARK_{key}": value for key, value in settings.items()}},
    )
    assert not done.stderr, done.stderr
    told = json.loads(done.stdout)
    assert told["schema_version"] == 1
    order = ["sound", "warning", "fault"]
    found: dict[str, Any] = {}
    for finding in told["findings"]:
        known = found.setdefault(finding["check"], finding)
        if order.index(finding["severity"]) > order.index(known["severity"]):
            found[finding["check"]] = finding
    return done.returncode, found


def test_of_nothing_it_says_so_and_makes_nothing(tmp_path: Path) -> None:
    code, found = doctor(tmp_path)
    assert code == 0
    assert found["last step"]["severity"] == found["alerts"]["severity"] == "warning"
    assert found["packages"]["severity"] == found["horovod"]["severity"] == "sound"
    assert str(tmp_path / "home") in found["places"]["message"]
    assert list(tmp_path.iterdir()) == []
    strict = floodmark("doctor", "--strict", "--home", tmp_path / "home", cwd=tmp_path)
    assert strict.returncode == 3
    lines = strict.stdout.splitlines()
    severities = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert severities == sorted(severities, key=["fault", "warning", "sound"].index)
    assert "         next: [alerts] in floodmark.toml" in lines


def test_every_fault_of_an_installation_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    ledger = Ledger.of(LocalStore(tmp_path / "home"), "floodmark")
    history = ledger.append(ledger.load(), PROMOTED)
    history = ledger.append(history, SettledRecord(version="1"))
    ledger.append(history, FailureRecord(step="window b", error="RetryableError: S3 does not answer"))
    code, found = doctor(
        tmp_path,
        {"HOOK": "http://user:secret@127.0.0.1:9/token"},
        ALERTS__WEBHOOK_URL_VARIABLE="HOOK",
        TRACKING_URI="http://127.0.0.1:9",
        DEPLOYMENT__SOURCE=str(tmp_path / "gone"),
    )
    assert code == 1
    assert found["last step"]["message"].startswith("window b failed at")
    for check in ("registry", "mlflow", "windows", "prefect", "alerts"):
        assert found[check]["severity"] == "fault", found[check]
    assert "FLOODMARK_TRACKING_URI" in found["places"]["message"]
    assert "secret" not in json.dumps(found)
    assert "token" not in json.dumps(found)


def test_a_ledger_whose_champion_the_registry_does_not_know_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    ledger = Ledger.of(LocalStore(tmp_path / "home"), "floodmark")
    ledger.append(ledger.append(ledger.load(), PROMOTED), SettledRecord(version="1"))
    code, found = doctor(tmp_path)
    assert code == 1
    assert found["ledger and registry"]["message"] == "the ledger's champion 1 is not in the registry"


def test_what_is_missing_in_prefect_is_told(tmp_path: Path) -> None:
    with prefect_api(tmp_path / "server") as url:
        look_at_prefect(url, tmp_path)


def look_at_prefect(prefect_server: str, tmp_path: Path) -> None:
    (tmp_path / "windows").mkdir()
    env = {"PREFECT_API_URL": prefect_server}
    code, found = doctor(tmp_path, env, DEPLOYMENT__SOURCE=str(tmp_path / "windows"))
    assert code == 1
    assert found["prefect"]["severity"] == found["clock"]["severity"] == "sound"
    assert found["deployment"]["message"] == "floodmark-monitor/floodmark is missing"
    assert found["automation"]["message"].startswith("floodmark-retrain-floodmark is missing")
    assert found["work pool"]["message"] == "floodmark-control is missing"

    with get_client(sync_client=True, httpx_settings={"base_url": prefect_server}) as client:
        for pool in ("floodmark-control", "floodmark-training"):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        client.send_worker_heartbeat("floodmark-control", "worker", 30)
    _, found = doctor(tmp_path, env, DEPLOYMENT__SOURCE=str(tmp_path / "windows"))
    assert found["work pool"]["message"] == "floodmark-training has no worker"
