"""A configuration as a TOML file that can be checked and run: what differs from the defaults, and reasons."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kstream_worker.calibration.propose import Proposal
from kstream_worker.config import Config, redact
from kstream_worker.config.fields import Field, fields_of

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 110


def settings_file(config: Config, proposal: Proposal, heading: str) -> str:
    """The file: the configuration as it is, with the proposed settings of the detector.

    Secrets are left out; the environment gives them.

    Args:
        config: as loaded.
        proposal: settings and remarks.
        heading: what the file is, for people.
    """
    proposed = {one.key: (one.value, one.reason) for one in proposal.settings}
    parts = [_comment(heading)]
    for name, field in fields_of(Config).items():
        if field.section is not None:
            notes = proposal.notes if name == "detector" else ()
            replaced = proposed if name == "detector" else {}
            parts += _section(name, getattr(config, name), replaced, notes)
    return "\n".join(parts) + "\n"


def _section(
    path: str,
    section: msgspec.Struct,
    replaced: Mapping[str, tuple[object, str]],
    notes: Sequence[str],
) -> list[str]:
    lines, below = [], []
    for name, field in fields_of(type(section)).items():
        value = getattr(section, name)
        if field.section is not None:
            below += _section(f"{path}.{name}", value, {}, ())
        elif isinstance(value, Mapping):
            below += _table(f"{path}.{name}", value)
        elif name in replaced:
            value, reason = replaced[name]
            lines += [_comment(reason), f"{name} = {_of_field(field, value)}"]
        elif value is not None and value != field.default:
            lines.append(f"{name} = {_value(value)}")
    head = ["", f"[{path}]"] if lines or notes else []
    return [*head, *map(_comment, notes), *lines, *below]


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
