"""The aliases follow the ledger, and never a person's back."""

from pathlib import Path

import pytest

from artifacts import build_artifact, training_request
from flows.installation import Installation
from flows.settle import follow
from infra.settings import load_settings
from monitoring.records import PromotionRecord
from training.types import PromotionOutcome

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

PROMOTED, ROLLED_BACK = PromotionOutcome.PROMOTED, PromotionOutcome.ROLLED_BACK


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Three registered versions of a model, none of them champion."""
    monkeypatch.chdir(tmp_path)
    installation = Installation(load_settings(None, {"home": tmp_path / "home"}))
    for seed in range(3):
        request = training_request(seed=seed)
        result = build_artifact(tmp_path / f"artifact-{seed}", request)
        installation.registry.register(request, result, reason="test")
    return installation


def verdict(version: str, from_version: str | None, outcome: PromotionOutcome = PROMOTED) -> PromotionRecord:
    return PromotionRecord(
        version=version, from_version=from_version, by="gates", outcome=outcome, reason="test"
    )


def aliases(installation: Installation) -> tuple[str | None, str | None, str | None]:
    found = installation.registry.aliases()
    return found.champion, found.previous, found.challenger


def test_promotion_and_rollback_move_champion_and_previous(installation: Installation) -> None:
    for _ in range(2):  # running it twice changes nothing
        follow(installation, verdict("1", None))
        assert aliases(installation) == ("1", None, None)
    follow(installation, verdict("2", "1"))
    assert aliases(installation) == ("2", "1", None)
    follow(installation, verdict("1", "2", ROLLED_BACK))
    assert aliases(installation) == ("1", "2", None)


def test_a_champion_that_a_person_set_since_the_verdict_stays(installation: Installation) -> None:
    follow(installation, verdict("1", None))
    installation.registry.set_alias("champion", "3")
    follow(installation, verdict("2", "1"))
    assert aliases(installation) == ("3", None, None)


def test_a_deleted_predecessor_stops_nothing(installation: Installation) -> None:
    follow(installation, verdict("2", "99"))
    assert aliases(installation) == ("2", None, None)


def test_only_the_judged_challenger_steps_down(installation: Installation) -> None:
    installation.registry.set_alias("challenger", "3")
    follow(installation, verdict("2", None))
    assert aliases(installation) == ("2", None, "3")
    follow(installation, verdict("3", "2", PromotionOutcome.UNDECIDED))
    assert aliases(installation) == ("2", None, "3")
    follow(installation, verdict("3", "2", PromotionOutcome.REFUSED))
    assert aliases(installation) == ("2", None, None)
