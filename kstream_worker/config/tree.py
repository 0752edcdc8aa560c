"""Values before they are checked: a tree by section and key whose leaves remember where they were given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, repr=False)
class Given:
    """One value as the user gave it.

    Attributes:
        value: as parsed from a file, or the raw text.
        place: where it stands, in words.
        text: raw text of an environment variable or a flag, yet to be read according to the key's type.
    """

    value: object
    place: str
    text: bool = False


Tree: TypeAlias = dict[str, "Tree | Given"]


def from_mapping(values: Mapping[str, object], place: str) -> Tree:
    """A tree whose leaves all stand in one place."""
    tree: Tree = {}
    for name, value in values.items():
        tree[name] = from_mapping(value, place) if isinstance(value, Mapping) else Given(value, place)
    return tree


def put(tree: Tree, path: tuple[str, ...], leaf: Given) -> None:
    """Set one leaf, making sections on the way; a leaf in the way is replaced."""
    node = tree
    for name in path[:-1]:
        below = node.get(name)
        if not isinstance(below, dict):
            below = {}
            node[name] = below
        node = below
    node[path[-1]] = leaf


def leaves(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Given]]:
    """All leaves with their paths."""
    for name, node in tree.items():
        if isinstance(node, Given):
            yield (*above, name), node
        else:
            yield from leaves(node, (*above, name))


def merge(base: Tree, over: Tree) -> Tree:
    """`base` with every leaf of `over` put above it."""
    merged: Tree = dict(base)
    for name, node in over.items():
        below = merged.get(name)
        merged[name] = merge(below, node) if isinstance(node, dict) and isinstance(below, dict) else node
    return merged


def place_of(node: Tree | Given) -> str:
    """Where a leaf, or the first leaf below a section, was given."""
    if isinstance(node, Given):
        return node.place
    for _, leaf in leaves(node):
        return leaf.place
    return "an empty section"
