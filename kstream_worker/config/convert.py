"""From given values to sections: every key known, every value of the right type and within its bounds."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

from kstream_worker.config.fields import Field, fields_of
from kstream_worker.config.redact import FreeTable
from kstream_worker.config.tree import Given, Tree, place_of
from kstream_worker.config.values import coerce, setting_value


def _all_keys(section: type[msgspec.Struct], above: str = "") -> Iterator[tuple[str, str]]:
    for name, field in fields_of(section).items():
        yield name, above + name
        if field.section is not None:
            yield from _all_keys(field.section, f"{above}{name}.")


def _near(name: str, names: list[str]) -> str | None:
    found = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return found[0] if found else None


def _suggestion(root: type[msgspec.Struct], section: type[msgspec.Struct], above: str, name: str) -> str:
    joined = [path for _, path in _all_keys(root) if "." in path and path.replace(".", "_") == name.lower()]
    if joined:  # as an environment variable: one underscore where two belong
        return f"did you mean `{joined[0]}`?"
    here = _near(name, list(fields_of(section)))
    if here is not None:
        return f"did you mean `{above}{here}`?"
    if above == "bus.kafka.":
        return "client settings belong to bus.kafka.common, bus.kafka.consumer or bus.kafka.producer"
    elsewhere = [path for other, path in _all_keys(root) if other == name.lower()]
    if elsewhere:
        return f"did you mean `{elsewhere[0]}`?"
    kind = "the sections are" if not above else "the keys here are"
    return f"{kind} {', '.join(fields_of(section))}"


class Converter:
    """Builds the sections of one configuration and gathers all that is wrong on the way."""

    def __init__(self, root: type[msgspec.Struct]) -> None:
        self.root = root
        self.problems: list[str] = []

    def build(self, section: type[msgspec.Struct], tree: Tree, above: str = "") -> Any:
        """The section's struct, or None when a value of it is missing or wrong."""
        fields = fields_of(section)
        for name in tree:
            if name not in fields:
                advice = _suggestion(self.root, section, above, name)
                self.problems.append(f"unknown key `{above}{name}` ({place_of(tree[name])}): {advice}")
        values: dict[str, object] = {}
        complete = True
        for name, field in fields.items():
            before = len(self.problems)
            values[name] = self._value(field, tree.get(name), above)
            complete = complete and not self._failed(field, values[name], before)
        return section(**values) if complete else None

    def _failed(self, field: Field, value: object, before: int) -> bool:
        return value is None and (field.section is not None or len(self.problems) > before)

    def _value(self, field: Field, node: Tree | Given | None, above: str) -> object:
        path = above + field.name
        if field.section is not None:
            if isinstance(node, Given):
                self.problems.append(f"`{path}` ({node.place}) is a section; set one of its keys")
                return None
            return self.build(field.section, node or {}, f"{path}.")
        if field.table is not None:
            return self._table(field.table, path, node)
        if node is None:
            if field.required:
                self.problems.append(
                    f"`{path}` is missing: give it in the file that --config names, or by --set {path}=.."
                )
            return None if field.required else field.default
        if not isinstance(node, Given):
            self.problems.append(f"`{path}` ({place_of(node)}) is a key, not a section")
            return None
        return self._leaf(field, path, node)

    def _leaf(self, field: Field, path: str, given: Given) -> object:
        try:
            return coerce(field, given)
        except ValueError as error:
            self.problems.append(f"`{path}` ({given.place}): {error}")
            return None

    def _table(self, kind: type[FreeTable], path: str, node: Tree | Given | None) -> FreeTable | None:
        if isinstance(node, Given):
            self.problems.append(f"`{path}` ({node.place}) is {kind.what}; set one of them")
            return None
        settings = kind()
        for name, leaf in (node or {}).items():
            if not isinstance(leaf, Given):
                self.problems.append(f"`{path}.{name}` ({place_of(leaf)}): expected a value, got a table")
                return None
            settings[name] = setting_value(name, leaf)
        return settings
