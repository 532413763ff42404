"""The contract's file: written, edited, read strictly, and part of how windows are read."""

from pathlib import Path

import pytest

from infra.contract_file import read_contract, render_contract
from infra.settings import Settings, load_settings
from monitoring.contract import ColumnRules, Contract
from monitoring.quality import default_severities
from test_quality import TERMS
from training.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configured(folder: Path, text: str | None) -> Settings:
    """Settings with a contract of this text; without the file for None."""
    (folder / "floodmark.toml").write_text('[quality]\ncontract = "contract.yaml"')
    if text is not None:
        (folder / "contract.yaml").write_text(text)
    return load_settings(None, {})


def test_what_is_written_is_read_back(folder: Path) -> None:
    learned = TERMS.contract
    severities = default_severities()
    text = render_contract(learned, model="pumps", version="7", severities=severities)
    assert "model pumps" in text
    assert "version 7" in text
    assert "categories: [a, b, c]" in text
    stated = configured(folder, text).stated_contract
    assert (stated.min_rows, stated.checks) == (learned.min_rows, severities)
    assert list(stated.columns) == list(learned.columns)
    for name, rules in learned.columns.items():
        assert stated.columns[name].range == (rules.range and pytest.approx(rules.range, rel=1e-2))
        assert stated.columns[name].categories == rules.categories


def test_words_that_yaml_would_read_as_something_else(folder: Path) -> None:
    words = ("NO", "off", "2026-01-01", "true", "1", "~", "")
    contract = Contract(columns={"on": ColumnRules(categories=words, nullable=False)})
    text = render_contract(contract, model="m", version="1", severities={})
    (folder / "contract.yaml").write_text(text)
    rules = read_contract(folder / "contract.yaml").columns["on"]
    assert (rules.categories, rules.nullable) == (words, False)
    by_hand = "columns:\n  country: {categories: [NO, SE, off], checks: {ranges: off}}"
    (folder / "contract.yaml").write_text(by_hand)
    rules = read_contract(folder / "contract.yaml").columns["country"]
    assert rules.categories == ("NO", "SE", "off")
    assert rules.checks == {"ranges": "off"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, ["contract.yaml", "No such file", "floodmark contract --out"]),
        ("", ["contract.yaml holds nothing", "columns"]),
        ("- a", ["contract.yaml holds ['a']"]),
        ("columns: [", ["not valid YAML"]),
        ("min_rows: 5\nmin_rows: 6", ["'min_rows' stands twice"]),
        ("minrows: 5", ["minrows: unknown key", "min_rows"]),
        ("min_rows: 0", ["min_rows is 0"]),
        ("min_rows: many", ["min_rows", "'many'"]),
        ("format_version: 2", ["format_version", "got 2"]),
        ("checks: {rangez: off}", ["checks.rangez: unknown check", "ranges"]),
        ("checks: {ranges: fatal}", ["checks.ranges", "'fatal'", "warn, quarantine, off"]),
        ("checks: {missing_columns: warn}", ["missing_columns is warn", "only quarantine"]),
        ("columns: {x: {rang: [0, 1]}}", ["columns.x.rang: unknown key", "range", "categories"]),
        ("columns: {x: {range: [1, 0]}}", ["columns.x", "range is [1.0, 0.0]", "the lower first"]),
        ("columns: {x: {range: [0, .nan]}}", ["columns.x", "two finite numbers"]),
        ("columns: {x: {range: [0]}}", ["columns.x.range"]),
        ("columns: {x: {missing_rate: 2}}", ["missing_rate is 2.0", "between 0 and 1"]),
        ("columns: {x: {kind: number}}", ["columns.x.kind", "'number'", "numeric"]),
        ("columns: {x: {categories: [1, 2]}}", ["columns.x.categories", "string"]),
        ("columns: {x: {kind: numeric, categories: [a]}}", ["columns.x", "numeric"]),
        ("columns: {x: }", ["columns.x"]),
    ],
)
def test_a_wrong_file_is_refused_at_start(folder: Path, text: str | None, said: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        configured(folder, text)
    for part in ("contract.yaml", *said):
        assert part in str(error.value)


def test_what_was_quarantined_is_taken_again_when_the_contract_changes(folder: Path) -> None:
    first = configured(folder, "min_rows: 5").reading
    assert configured(folder, "min_rows: 5  # a comment").reading == first
    assert configured(folder, "min_rows: 6").reading != first
