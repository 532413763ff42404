"""What the documents tell people to type: every command, option and make verb in them exists."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (".", "flows", "infra", "monitoring", "training")
DOCUMENTS = sorted(path for room in ROOMS for path in (ROOT / room).glob("*.md"))
TEXTS = {path: path.read_text() for path in DOCUMENTS}
VERBS = sorted({verb for text in TEXTS.values() for verb in re.findall(r"`make ([a-z-]+)", text)})
COMMAND = re.compile(r"(?:^|\s|/)floodmark((?:\s+(?:\"[^\"]*\"|'[^']*'|[^\s`#>|&;\"']+))*)")
for module in (ROOT / "flows").glob("cli_*.py"):
    importlib.import_module(f"flows.{module.stem}")  # each registers its commands

PLACEHOLDERS = re.compile(r"[\[\]]|…|\.\.\.$")


def written_in(document: Path) -> Iterator[str]:
    """Code: indented lines, fenced ones without prompts' answers, and spans; continued lines are one."""
    text = TEXTS[document].replace("\\\n", " ")
    yield from re.findall(r"^ {4,}(?:\$ )?(\S.*)$", text, re.MULTILINE)
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def commands() -> list[str]:
    """Every distinct `floodmark …` of the documents."""
    found = {
        f"floodmark{arguments}"
        for document in DOCUMENTS
        for code in written_in(document)
        if code.lstrip("$ ").startswith((".venv/bin/floodmark ", "floodmark ", "export", "`"))
        for arguments in COMMAND.findall(code)
        if arguments.strip()
    }
    return sorted(found)


@pytest.mark.parametrize("command", commands())
def test_a_documented_command_and_its_options_exist(command: str) -> None:
    words = [PLACEHOLDERS.sub("", word) for word in shlex.split(command)[1:]]
    told = CliRunner().invoke(app, [*(word for word in words if word), "--help"])
    assert told.exit_code == 0, told.output
    for option in (word for word in words if word.startswith("--")):
        assert f"{option} " in told.output, told.output


def test_every_document_has_commands_and_they_are_many() -> None:
    assert len(commands()) > 20


@pytest.mark.parametrize("verb", VERBS)
def test_a_documented_make_verb_exists(verb: str) -> None:
    assert re.search(rf"^{verb}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
