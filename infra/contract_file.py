"""The data contract as a file: YAML that a person can edit, read strictly.

YAML 1.1 reads `off`, `no` and `2026-01-01` as a boolean and a date. Here only `true` and `false` are
booleans and nothing is a date, as in YAML 1.2, so that `off` is a severity and NO a category.
"""

import dataclasses
import math
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import TypeAdapter, ValidationError

from monitoring.contract import CheckName, ColumnRules, Contract, RuleSeverity
from training.errors import ConfigurationError

STATED_CATEGORIES = 50
"""Columns with more categories are written without them, and go on being learned."""

_CONTRACT = TypeAdapter(Contract)
_BOOLEAN, _DATE = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"
_ALLOWED = {
    "contract": ", ".join(item.name for item in dataclasses.fields(Contract)),
    "column": ", ".join(item.name for item in dataclasses.fields(ColumnRules)),
    "check": ", ".join(get_args(CheckName)),
    "severity": ", ".join(get_args(RuleSeverity)),
}
_HEAD = """\
# The data contract of model {model}, learned from the reference of version {version}.
#
# It holds once floodmark.toml names it:   [quality]
#                                          contract = "contract.yaml"
# What stands here overrides what is learned, for later champions too: delete what shall go on being
# learned. A breach of a check makes a window `quarantine` or `warn`; `off` does not look. What stands
# in a column's `checks` outranks the `checks` of all columns.
#   range        numbers from and to, both allowed; as learned, widened by [quality] range_margin
#   categories   all that are allowed; columns with more than {categories} are left out
#   nullable     false allows no missing value at all
#   missing_rate the usual share of missing values; [quality] missing_rise_... says how far it may rise
"""


def read_contract(path: Path) -> Contract:
    """Read and validate a contract's file.

    Raises:
        ConfigurationError: It is missing, empty or no YAML, or a key or a value is not allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"quality.contract is {str(path)!r}, which cannot be read: {error}",
            hint="name an existing file; `floodmark contract --out FILE` writes what was learned, "
            "with this key left out or FLOODMARK_QUALITY__CONTRACT unset",
        ) from error
    try:
        content = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the contract {path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not content:
        raise ConfigurationError(
            f"the contract {path} holds {'nothing' if content is None else repr(content)[:60]}",
            hint=f"allowed are the keys {_ALLOWED['contract']}",
        )
    try:
        return _CONTRACT.validate_python(content)
    except ValidationError as error:
        lines = "\n  ".join(_explained(item) for item in error.errors(include_url=False))
        raise ConfigurationError(
            f"the contract {path} is not valid\n  {lines}",
            hint="nothing was taken; mend the file and run the same command again",
        ) from error


def render_contract(
    contract: Contract, *, model: str, version: str, severities: Mapping[CheckName, RuleSeverity]
) -> str:
    """Return a contract as the text of a file, with the severity of every check."""
    content: dict[str, object] = {
        "format_version": contract.format_version,
        "min_rows": contract.min_rows,
        "checks": {**severities, **contract.checks},
        "columns": {name: _column(rules) for name, rules in contract.columns.items()},
    }
    head = _HEAD.format(model=model, version=version, categories=STATED_CATEGORIES)
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"{head}\n{body}"


class _Loader(yaml.SafeLoader):
    """Reads plain YAML with few implicit types, and refuses a key that stands twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [(tag, pattern) for tag, pattern in found if tag not in {_BOOLEAN, _DATE}]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if names.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes lists and short mappings on one line, and what `_Loader` reads back."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


_Dumper.add_representer(
    list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)
for _loader in (_Loader, _Dumper):
    _loader.add_implicit_resolver(_BOOLEAN, re.compile("^(?:true|false)$"), list("tf"))


def _column(rules: ColumnRules) -> dict[str, object]:
    stated: dict[str, object] = {"kind": rules.kind, "nullable": rules.nullable}
    if rules.missing_rate is not None:
        stated["missing_rate"] = round(rules.missing_rate, 6)
    if rules.range is not None:
        stated["range"] = _readable(*rules.range)
    if rules.categories is not None and len(rules.categories) <= STATED_CATEGORIES:
        stated["categories"] = list(rules.categories)
    return {**stated, "checks": dict(rules.checks)}


def _readable(low: float, high: float) -> list[float]:
    """Round both ends to a thousandth of their distance, or so."""
    width = high - low
    if not 0 < width < math.inf:
        return [low, high]
    places = 3 - math.floor(math.log10(width))
    return [round(low, places), round(high, places)]


def _explained(item: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    place = [str(part) for part in item["loc"] if part != "[key]"]
    got = f"(got {repr(item['input'])[:60]})"
    if item["type"] == "unexpected_keyword_argument":
        where = "column" if len(place) > 1 else "contract"
        return f"{'.'.join(place)}: unknown key; allowed are {_ALLOWED[where]}"
    if "[key]" in item["loc"]:
        return f"{'.'.join(place)}: unknown check; allowed are {_ALLOWED['check']}"
    if item["type"] == "literal_error" and "checks" in place:
        return f"{'.'.join(place)}: no severity {got}; allowed are {_ALLOWED['severity']}"
    return f"{'.'.join(place)}: {item['msg'].removeprefix('Value error, ')} {got}"
