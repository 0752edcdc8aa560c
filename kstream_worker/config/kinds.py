"""Kinds of models, as far as the configuration must know them before anything is built.

A built-in kind has a line here, a section of its name in `schema.Config` where it has options, and its object in
`models/kinds.py`; a kind of another package is found by its entry point, and its options stand in `model.options`.
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, NamedTuple

RATIO = "ratio"
GROUP = "kstream_worker.models"
_SIDES = ("pair", "single")


class Facts(NamedTuple):
    """What a kind takes; see `models.contract.ModelKind`.

    Attributes:
        sides: `pair` or `single`.
        same_space: whether both sides of a pair bind equally many values.
        missing: whether a sample may lack values.
    """

    sides: str
    same_space: bool
    missing: bool


BUILT_IN: dict[str, Facts] = {
    RATIO: Facts("pair", same_space=True, missing=False),  # and single samples, which are compared with the past
    "cme": Facts("pair", same_space=False, missing=False),
    "olrsc": Facts("single", same_space=False, missing=True),
    "ridge": Facts("pair", same_space=False, missing=False),
    "koopman": Facts("pair", same_space=True, missing=False),
    "river": Facts("pair", same_space=False, missing=False),
}


def facts(name: str) -> Facts:
    """What the kind of this name takes.

    Raises:
        ValueError: there is no such kind, or its package cannot be used; says why.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    kind = third_party(name)
    return Facts(kind.sides, kind.same_space, kind.missing)


def third_party(name: str) -> Any:
    """The object (`models.contract.ModelKind`) that another package registered under this name.

    Raises:
        ValueError: there is none, two packages claim the name, or what is registered cannot be loaded or is no kind.
    """
    others = entry_points(group=GROUP)
    found = [point for point in others if point.name == name]
    if not found:  # without the text that was given: a value in the wrong place may be a secret
        near = difflib.get_close_matches(name.lower(), [*BUILT_IN, *others.names], n=1, cutoff=0.6)
        advice = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`model.kind` names no kind that is installed: {_available(others)}{advice}")
    if len({point.value for point in found}) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise ValueError(f"`model.kind` {name} is registered by {packages}: uninstall one of them")
    point = found[0]
    where = f"`model.kind` {name} ({_package(point)}, {point.value})"
    try:
        kind = point.load()
    except Exception as error:
        raise ValueError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    for attribute, right in (
        ("sides", getattr(kind, "sides", None) in _SIDES),
        ("same_space", isinstance(getattr(kind, "same_space", None), bool)),
        ("missing", isinstance(getattr(kind, "missing", None), bool)),
        ("build", callable(getattr(kind, "build", None))),
    ):
        if not right:
            raise ValueError(f"{where} is no kind of models: its `{attribute}` is missing or wrong")
    return kind


def _available(others: EntryPoints) -> str:
    named = [*BUILT_IN, *(f"{name} ({_package(others[name])})" for name in sorted(others.names - set(BUILT_IN)))]
    return f"there are {', '.join(named)}" if len(named) > 1 else f"there is {named[0]} alone"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
