"""Reading one TOML or YAML file. Messages never quote the file's text: a secret may stand there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from kstream_worker.config.tree import Tree, from_mapping
from kstream_worker.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """YAML without duplicate keys, and with `1e6` as a number as in TOML and JSON."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As the parent's, but a key that stands twice is an error, not a silent choice."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(problem="a key stands twice", problem_mark=key_node.start_mark)
            if isinstance(key_node.value, str):
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"configuration file {path} does not exist; give the right path to --config") from None
    except UnicodeDecodeError:
        raise ConfigError(f"configuration file {path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"configuration file {path} cannot be read: {error.strerror}; correct its path or rights"
        ) from None


def _toml(text: str, path: Path) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at [^)]*\)", str(error))
        where = place[0].strip("()") if place else "in it"
        raise ConfigError(f"configuration file {path} is not valid TOML {where}") from None


def _yaml(text: str, path: Path) -> object:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"at line {mark.line + 1}, column {mark.column + 1}" if mark else "in it"
        what = ": a key stands twice" if error.problem == "a key stands twice" else ""
        raise ConfigError(f"configuration file {path} is not valid YAML {where}{what}") from None
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"configuration file {path} is not valid YAML") from None


_PARSERS = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml}


def _check_keys(value: object, path: Path, above: str = "") -> None:
    if isinstance(value, dict):
        for key, below in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"configuration file {path}: a key in {above or 'it'} is no text; put it in quotes")
            _check_keys(below, path, f"{above}.{key}" if above else f"`{key}`")


def read_file(path: Path) -> Tree:
    """All values of one configuration file.

    Raises:
        ConfigError: the file cannot be read or parsed; names the place.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(f"configuration file {path} has an unknown kind; name it .toml, .yaml or .yml")
    values = parse(_text(path), path)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"configuration file {path} must hold sections with keys at its top")
    _check_keys(values, path)
    return from_mapping(values, str(path))
