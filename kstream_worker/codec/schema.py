"""A binding as a tree of typed structs, so that a decoder builds the bound fields and skips everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from kstream_worker.codec.binding import Binding, Path, Side
from kstream_worker.records import FloatMatrix

Row = Any  # an instance of the generated struct

_TIME = int | float | str | None
_KEY = int | str | None


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The generated struct type and how to take columns out of its instances.

    Attributes:
        type: the struct; a decoder for it accepts exactly the records whose bound numbers are all there and well typed.
        y: rows to float64[n, d].
        x: likewise for the reference side; None when one-sided.
        time: the event time of a row as found; None when not bound.
        key: the entity key of a row as found; None when not bound.
    """

    type: type[Any]
    y: Callable[[Sequence[Row]], FloatMatrix]
    x: Callable[[Sequence[Row]], FloatMatrix] | None
    time: Callable[[Row], object] | None
    key: Callable[[Row], str | int | None] | None


@dataclass(frozen=True, slots=True)
class _Leaf:
    type: Any
    required: bool


_Tree = dict[str, Any]  # name -> _Leaf or _Tree


def row_schema(binding: Binding) -> RowSchema:
    """The struct type of a binding and its column getters."""
    tree: _Tree = {}
    for side in filter(None, (binding.x, binding.y)):
        holed = binding.missing and side is binding.y
        number: Any = float | None if holed else float
        leaf = _Leaf(tuple[(number,) * side.dims] if side.is_array else number, not holed)  # type: ignore[misc]
        for path in side.paths:
            _plant(tree, path, leaf)
    for optional, kind in ((binding.timestamp, _TIME), (binding.key, _KEY)):
        if optional is not None:
            _plant(tree, optional, _Leaf(kind, False))
    attribute = _attributes(tree)
    return RowSchema(
        type=_struct("Row", tree),
        y=(_holed_matrix if binding.missing else _matrix)(binding.y, attribute),
        x=None if binding.x is None else _matrix(binding.x, attribute),
        time=None if binding.timestamp is None else _optional(attribute[binding.timestamp]),
        key=None if binding.key is None else _optional(attribute[binding.key]),
    )


def _plant(tree: _Tree, path: Path, leaf: _Leaf) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree.setdefault(path[-1], leaf)  # what x needs is not optional because y may lack it


def _is_required(node: Any) -> bool:
    return node.required if isinstance(node, _Leaf) else any(map(_is_required, node.values()))


def _struct(name: str, tree: _Tree) -> type[Any]:
    """Attributes are f0, f1, ... in the order of the tree, so that any name may occur in a payload."""
    fields: list[Any] = []
    for i, node in enumerate(tree.values()):
        kind = node.type if isinstance(node, _Leaf) else _struct(f"{name}{i}", node)
        fields.append((f"f{i}", kind) if _is_required(node) else (f"f{i}", kind | None, None))
    # msgspec wants required fields first
    fields.sort(key=len)
    names = {f"f{i}": key for i, key in enumerate(tree)}
    return msgspec.defstruct(name, fields, rename=names, gc=False)


def _attributes(tree: _Tree, prefix: str = "") -> dict[Path, str]:
    """Payload path to attribute path."""
    found: dict[Path, str] = {}
    for i, (name, node) in enumerate(tree.items()):
        if isinstance(node, _Leaf):
            found[(name,)] = f"{prefix}f{i}"
        else:
            inner = _attributes(node, f"{prefix}f{i}.")
            found.update({(name, *path): attribute for path, attribute in inner.items()})
    return found


def _matrix(side: Side, attribute: dict[Path, str]) -> Callable[[Sequence[Row]], FloatMatrix]:
    attributes = [attribute[path] for path in side.paths]
    # Most often all numbers are in one object: it is looked up once a record then, not once a number.
    parents = {name.rpartition(".")[0] for name in attributes}
    parent = parents.pop() if len(parents) == 1 else ""
    get: Callable[[Row], Any] = attrgetter(*(name[len(parent) + 1 :] if parent else name for name in attributes))
    nested = side.is_array or side.dims > 1
    dims = side.dims

    def matrix(rows: Sequence[Row]) -> FloatMatrix:
        numbers = map(get, map(attrgetter(parent), rows) if parent else rows)
        flat: Iterator[float] = chain.from_iterable(numbers) if nested else numbers
        return np.fromiter(flat, dtype=np.float64, count=len(rows) * dims).reshape(len(rows), dims)

    return matrix


def _holed_matrix(side: Side, attribute: dict[Path, str]) -> Callable[[Sequence[Row]], FloatMatrix]:
    """As `_matrix`, NaN where a number, or an object or array on the way to it, is missing or null."""
    getters = [_optional(attribute[path]) for path in side.paths]
    dims = side.dims

    def matrix(rows: Sequence[Row]) -> FloatMatrix:
        if side.is_array:
            found = [getters[0](row) or (None,) * dims for row in rows]
        else:
            found = [tuple(get(row) for get in getters) for row in rows]
        return np.array(found, dtype=np.float64).reshape(len(rows), dims)

    return matrix


def _optional(attribute: str) -> Callable[[Row], Any]:
    """A getter that answers None where an optional object on the way is missing."""
    get = attrgetter(attribute)
    if "." not in attribute:
        return get

    def get_or_none(row: Row) -> Any:
        try:
            return get(row)
        except AttributeError:
            return None

    return get_or_none
