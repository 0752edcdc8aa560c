"""A configuration as a TOML file that can be checked and run: what differs from the defaults, and reasons."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kstream_worker.calibration.propose import Proposal, Proposed
from kstream_worker.config import Config, redact
from kstream_worker.config.fields import Field, fields_of
from kstream_worker.config.load import fill_defaults

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 110


def settings_file(config: Config, proposal: Proposal, heading: str) -> str:
    """The file: the configuration as it is, with the proposed settings of the detector.

    What the defaults lead to is left out, and so are secrets, which the environment gives.

    Args:
        config: as loaded.
        proposal: settings and remarks.
        heading: what the file is, for people.
    """
    return "\n".join([_comment(heading), *_sections(config, (), proposal)]) + "\n"


def _sections(config: Config, above: tuple[str, ...], proposal: Proposal) -> list[str]:
    lines: list[str] = []
    for name, field in _fields_at(config, above).items():
        path = (*above, name)
        if field.section is not None:
            lines += [*_own_keys(config, path, proposal), *_sections(config, path, proposal)]
        elif isinstance(value := _at(config, path), Mapping):
            lines += _table(".".join(path), value)
    return lines


def _own_keys(config: Config, path: tuple[str, ...], proposal: Proposal) -> list[str]:
    """A section without those below it."""
    is_detector = path == ("detector",)
    proposed = {one.key: one for one in proposal.settings} if is_detector else {}
    lines = list(map(_comment, proposal.notes)) if is_detector else []
    for name, field in _fields_at(config, path).items():
        value = _at(config, (*path, name))
        if name in proposed:
            lines += _proposed(field, proposed[name])
        elif field.section is None and not isinstance(value, Mapping) and not _follows(config, path, field):
            lines.append(f"{name} = {_of_field(field, value)}")
    return ["", f"[{'.'.join(path)}]", *lines] if lines else []


def _proposed(field: Field, one: Proposed) -> list[str]:
    if one.value is None:
        return [_comment(f"{one.key} is left at its default. {one.reason}")]
    return [_comment(one.reason), f"{one.key} = {_of_field(field, one.value)}"]


def _follows(config: Config, path: tuple[str, ...], field: Field) -> bool:
    """Whether the defaults lead to the value that a key has; so do they to one that is None."""
    if field.required:
        return False
    return _at(config, (*path, field.name)) is None or fill_defaults(_without(config, path, field)) == config


def _without(config: Config, path: tuple[str, ...], field: Field) -> Config:
    """The configuration with one key at its default."""
    changed = msgspec.structs.replace(_at(config, path), **{field.name: field.default})
    for depth in range(len(path) - 1, -1, -1):
        changed = msgspec.structs.replace(_at(config, path[:depth]), **{path[depth]: changed})
    whole: Config = changed
    return whole


def _fields_at(config: Config, path: tuple[str, ...]) -> dict[str, Field]:
    section: type[msgspec.Struct] = type(_at(config, path))
    return fields_of(section)


def _at(config: Config, path: tuple[str, ...]) -> Any:
    """The section or value at a path."""
    found: Any = config
    for name in path:
        found = getattr(found, name)
    return found


def _table(path: str, values: Mapping[str, object]) -> list[str]:
    """Settings of a client, under its own names."""
    if not values:
        return []
    lines = ["", f"[{path}]"]
    for name, value in values.items():
        if redact(value, name) != value:
            lines.append(_comment(f"{name} is a secret: give it by the environment, see docs/configuration.md"))
        elif value is not None:
            lines.append(f"{_key(name)} = {_value(value)}")
    return lines


def _of_field(field: Field, value: object) -> str:
    """Durations and sizes as text with a unit."""
    return _value(field.show(value) if field.unit else value)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _value(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(name))} = {_value(one)}" for name, one in value.items()) + " }"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for the one of DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _comment(text: str) -> str:
    lines = [line for one in text.splitlines() for line in textwrap.wrap(one, _WIDTH) or [""]]
    return "\n".join(f"# {line}".rstrip() for line in lines)
