"""Values from the environment and from flags: raw texts with a path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from kstream_worker.config.fields import fields_of
from kstream_worker.config.tree import Given, Tree, put

PREFIX = "KSTREAM_WORKER__"
_FILE = "_file"


def _names_a_key(root: type[msgspec.Struct], path: tuple[str, ...]) -> bool:
    section = root
    for name in path[:-1]:
        field = fields_of(section).get(name)
        if field is None or field.section is None:
            return False
        section = field.section
    return path[-1] in fields_of(section)


def split_path(root: type[msgspec.Struct], dotted: str) -> tuple[str, ...]:
    """The path of `section.key`; below a table of settings dots belong to the setting's name."""
    parts = dotted.split(".")
    section = root
    for depth, name in enumerate(parts):
        field = fields_of(section).get(name)
        if field is None:
            break
        if field.table is not None:
            rest = ".".join(parts[depth + 1 :])
            return (*parts[: depth + 1], rest) if rest else tuple(parts)
        if field.section is None:
            break
        section = field.section
    return tuple(parts)


def _from_secret_file(name: str, file: str, problems: list[str]) -> Given | None:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        problems.append(f"environment variable {name}: the file it names is not UTF-8 text")
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        problems.append(f"environment variable {name}: the file it names cannot be read: {reason}")
        return None
    return Given(text.rstrip("\r\n"), f"the file of environment variable {name}", text=True)


def from_environment(root: type[msgspec.Struct], environment: Mapping[str, str], problems: list[str]) -> Tree:
    """Values of all variables `KSTREAM_WORKER__SECTION__KEY`, and `..._FILE` whose value is a file's content."""
    tree: Tree = {}
    seen: dict[tuple[str, ...], str] = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        leaf: Given | None = Given(environment[name], f"environment variable {name}", text=True)
        if path[-1].endswith(_FILE) and not _names_a_key(root, path):
            path = (*path[:-1], path[-1].removesuffix(_FILE))
            leaf = _from_secret_file(name, environment[name], problems)
        if not all(path):
            problems.append(f"environment variable {name}: expected {PREFIX}SECTION__KEY")
        elif path in seen:
            problems.append(f"environment variables {seen[path]} and {name} give the same key; keep one")
        elif leaf is not None:
            put(tree, path, leaf)
        seen.setdefault(path, name)
    return tree


def from_flags(
    root: type[msgspec.Struct], settings: Iterable[str], flags: Iterable[tuple[str, str, str]], problems: list[str]
) -> Tree:
    """Values of `--set section.key=value`, later ones win, and above them of named flags `(flag, path, value)`."""
    tree: Tree = {}
    for setting in settings:
        dotted, equals, value = setting.partition("=")
        path = split_path(root, dotted.strip())
        if not equals or not all(path) or len(path) < 2:
            shown = dotted.strip() if equals else "..."
            problems.append(f"flag --set {shown}: expected --set section.key=value")
            continue
        put(tree, path, Given(value, f"flag --set {dotted.strip()}", text=True))
    for flag, dotted, value in flags:
        put(tree, split_path(root, dotted), Given(value, f"flag {flag}", text=True))
    return tree
