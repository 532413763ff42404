"""A home with one registered champion, made without a training."""

from pathlib import Path

from artifacts import build_artifact, training_request
from flows.installation import Installation
from infra.settings import load_settings
from monitoring.history import History
from monitoring.records import PromotionRecord
from training.types import PromotionOutcome


def champion_home(folder: Path) -> Path:
    """Register the linear detector of `artifacts` below `folder` and make it the champion."""
    installation = Installation(load_settings(None, {"home": folder / "home"}))
    request = training_request()
    result = build_artifact(folder / "artifact", request, rows=1_000)
    version = installation.registry.register(request, result, reason="test")
    promotion = PromotionRecord(
        version=version, from_version=None, by="gates", outcome=PromotionOutcome.PROMOTED, reason="test"
    )
    installation.ledger.append(History(), promotion)
    return folder / "home"
