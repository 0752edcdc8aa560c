"""How a section describes its fields, and how loading and the reference page read that description.

A field is `name: Annotated[type, doc("...")]`. Its text, bounds and unit are written there once.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, Union, Unpack, get_args, get_origin, get_type_hints

import msgspec

from kstream_worker.config.redact import FreeTable
from kstream_worker.config.units import format_duration, format_size


class Bounds(TypedDict, total=False):
    """Limits of a number, as msgspec names them."""

    ge: float
    gt: float
    le: float
    lt: float


def _meta(text: str, unit: str, bounds: Bounds) -> msgspec.Meta:
    meta: Any = msgspec.Meta  # its overloads allow one lower and one upper bound, which a TypedDict cannot say
    described: msgspec.Meta = meta(description=text, extra={"unit": unit}, **bounds)
    return described


def doc(text: str, **bounds: Unpack[Bounds]) -> msgspec.Meta:
    """Describe a field."""
    return _meta(text, "", bounds)


def duration(text: str, **bounds: Unpack[Bounds]) -> msgspec.Meta:
    """Describe a duration: a float of seconds, given as a number or as text with a unit."""
    return _meta(text, "duration", bounds)


def size(text: str, **bounds: Unpack[Bounds]) -> msgspec.Meta:
    """Describe a size: an int of bytes, given as a number or as text with a unit."""
    return _meta(text, "size", bounds)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section.

    Attributes:
        name: as written in files.
        kinds: the types it may hold, without None.
        choices: the texts it may hold, where it is a choice.
        optional: whether None is a value.
        unit: `duration`, `size` or the empty text.
        meta: description and bounds.
        default: `msgspec.NODEFAULT` where the user must give it.
    """

    name: str
    kinds: tuple[Any, ...]
    choices: tuple[str, ...]
    optional: bool
    unit: str
    meta: msgspec.Meta
    default: object

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def section(self) -> type[msgspec.Struct] | None:
        """The struct behind this field, where it is a section."""
        kind = self.kinds[0]
        return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None

    @property
    def table(self) -> type[FreeTable] | None:
        """The table behind this field, where it is one of settings that others named."""
        kind = self.kinds[0]
        return kind if isinstance(kind, type) and issubclass(kind, FreeTable) else None

    def show(self, value: object) -> str:
        """A value as one would write it."""
        if value is None:
            return "none"
        if self.unit == "duration" and isinstance(value, float):
            return format_duration(value)
        if self.unit == "size" and isinstance(value, int):
            return format_size(value)
        if isinstance(value, tuple):
            return "[" + ", ".join(map(str, value)) + "]"
        return f"{value:.15g}" if isinstance(value, float) else str(value)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _field(name: str, hint: Any, default: object) -> Field:
    meta = msgspec.Meta()
    if get_origin(hint) is Annotated:
        hint, meta = get_args(hint)[:2]
    kinds: list[Any] = []
    choices: tuple[str, ...] = ()
    alternatives = _alternatives(hint)
    for kind in alternatives:
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            kinds.append(str)
        elif kind is not type(None):
            kinds.append(kind)
    return Field(
        name=name,
        kinds=tuple(kinds),
        choices=choices,
        optional=type(None) in alternatives,
        unit=str((meta.extra or {}).get("unit", "")),
        meta=meta,
        default=default,
    )


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return msgspec.NODEFAULT


@cache
def fields_of(section: type[msgspec.Struct]) -> dict[str, Field]:
    """The fields of a section by name, in the order of its file."""
    hints = get_type_hints(section, include_extras=True)
    found = msgspec.structs.fields(section)
    return {field.name: _field(field.name, hints[field.name], _default(field)) for field in found}
