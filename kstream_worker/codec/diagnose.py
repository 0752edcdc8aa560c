"""The slow path: a record that the typed decoder refused is walked field by field, to name what is wrong with it.

It is also the reference of the fast path: both accept the same records with the same values, except that a bound
timestamp of the wrong type is no reason to refuse a record (it counts as absurd) and is only forgiven here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import msgspec

from kstream_worker.codec.binding import Binding, Path, Side, path_text
from kstream_worker.errors import RejectRecord

Objects = Callable[[Any], Mapping[str, Any]]  # encoded object -> its members, still encoded
Value = Callable[[Any], Any]  # encoded member -> its value

EXCERPT_BYTES = 80

_MISSING = object()
_BYTE = re.compile(r"\(byte (\d+)\)")

_FORMATS = (
    (b"\xef\xbb\xbf", "it starts with a byte order mark"),
    (b"\x1f\x8b", "it looks like gzip"),
    (b"\x04\x22\x4d\x18", "it looks like an LZ4 frame"),
    (b"\x28\xb5\x2f\xfd", "it looks like Zstandard"),
    (b"Obj\x01", "it looks like an Avro file"),
    (b"\x00\x00", "it looks like the framing of a schema registry"),
    (b"\x00", "it starts with a NUL byte"),
)


@dataclass(slots=True)
class DecodedRow:
    """The bound fields of one record, as the slow path finds them."""

    x: list[float] | None
    y: list[float]
    time: object
    key: str | int | None


def excerpt(payload: bytes, around: int = 0) -> str:
    """At most 80 bytes of a payload, escaped to ASCII, with the position `around` inside."""
    start = max(0, min(around - EXCERPT_BYTES // 2, len(payload) - EXCERPT_BYTES))
    part = payload[start : start + EXCERPT_BYTES]
    shown = repr(part)[1:]
    return f"{'...' if start else ''}{shown}{'...' if start + len(part) < len(payload) else ''}"


def not_decodable(payload: bytes, found: str, around: int = 0) -> RejectRecord:
    """The refusal of a payload that is not of the configured format."""
    if not payload:
        return RejectRecord("not_decodable", "the value is empty (a tombstone has a null value)")
    hint = next((f"; {words}" for magic, words in _FORMATS if payload.startswith(magic)), "")
    return RejectRecord("not_decodable", f"{found}{hint}; value: {excerpt(payload, around)}")


class Diagnosis:
    """Decodes one record of a binding field by field.

    Args:
        binding: the bound fields.
        objects: decodes an object to its members; raises `msgspec.MsgspecError` where it is none.
        value: decodes a member; raises `msgspec.MsgspecError`.
    """

    def __init__(self, binding: Binding, objects: Objects, value: Value) -> None:
        self._binding = binding
        self._objects = objects
        self._value = value

    def decode(self, payload: bytes) -> DecodedRow:
        """The record's bound fields.

        Raises:
            RejectRecord: with the first reason found, in the order of the binding.
        """
        top = self._open(payload)
        return DecodedRow(
            x=None if self._binding.x is None else self._numbers(top, self._binding.x),
            y=self._holed_numbers(top) if self._binding.missing else self._numbers(top, self._binding.y),
            time=self._time(top),
            key=self._key(top),
        )

    def _open(self, payload: bytes) -> Mapping[str, Any]:
        try:
            return self._objects(payload)
        except msgspec.ValidationError as error:
            raise not_decodable(payload, f"expected an object with named fields ({error})") from error
        except msgspec.MsgspecError as error:
            at = _BYTE.search(str(error))
            raise not_decodable(payload, str(error), int(at[1]) if at else 0) from error
        except RecursionError as error:
            raise not_decodable(payload, "nested too deeply") from error

    def _find(self, top: Mapping[str, Any], path: Path) -> tuple[Any, int]:
        """The encoded member under a path, or `_MISSING`; and how many names of the path were followed."""
        node = top
        for depth, name in enumerate(path[:-1]):
            if name not in node:
                return _MISSING, depth
            try:
                node = self._objects(node[name])
            except msgspec.MsgspecError:
                return _MISSING, depth + 1
        if path[-1] not in node:
            return _MISSING, len(path) - 1
        return node[path[-1]], len(path)

    def _required(self, top: Mapping[str, Any], path: Path) -> Any:
        raw, followed = self._find(top, path)
        if raw is _MISSING:
            here = path_text(path[:followed]) if followed else "the top level"
            raise RejectRecord("field_missing", f"{path_text(path)}: no such field (looked as far as {here})")
        return self._decoded(raw, path)

    def _numbers(self, top: Mapping[str, Any], side: Side) -> list[float]:
        if not side.is_array:
            return [as_number(path_text(path), self._required(top, path)) for path in side.paths]
        name = path_text(side.paths[0])
        found = _array(name, self._required(top, side.paths[0]), side.dims)
        return [as_number(f"{name}[{i}]", item) for i, item in enumerate(found)]

    def _holed_numbers(self, top: Mapping[str, Any]) -> list[float]:
        """As `_numbers` of y, NaN where a number, or an object or array on the way to it, is missing or null."""
        side = self._binding.y
        if not side.is_array:
            return [_number_or_nan(path_text(path), self._optional(top, path)) for path in side.paths]
        found, name = self._optional(top, side.paths[0]), path_text(side.paths[0])
        if found is None:
            return [nan] * side.dims
        return [_number_or_nan(f"{name}[{i}]", item) for i, item in enumerate(_array(name, found, side.dims))]

    def _optional(self, top: Mapping[str, Any], path: Path) -> Any:
        """The value under a path; None where it, or an object on the way to it, is missing or null."""
        node = top
        for depth, name in enumerate(path[:-1], 1):
            if name not in node or self._decoded(node[name], path[:depth]) is None:
                return None
            try:
                node = self._objects(node[name])
            except msgspec.MsgspecError:
                what = f"{path_text(path)}: no such field ({path_text(path[:depth])} is no object)"
                raise RejectRecord("field_missing", what) from None
        return self._decoded(node[path[-1]], path) if path[-1] in node else None

    def _decoded(self, raw: Any, path: Path) -> Any:
        try:
            return self._value(raw)
        except msgspec.MsgspecError as error:
            raise _unreadable(path, error) from error

    def _time(self, top: Mapping[str, Any]) -> object:
        """The timestamp as found; None also where it cannot be read, for then the bus's own record time serves."""
        if self._binding.timestamp is None:
            return None
        raw, _ = self._find(top, self._binding.timestamp)
        try:
            return None if raw is _MISSING else self._value(raw)
        except msgspec.MsgspecError:
            return None

    def _key(self, top: Mapping[str, Any]) -> str | int | None:
        if self._binding.key is None:
            return None
        raw, _ = self._find(top, self._binding.key)
        if raw is _MISSING:
            return None
        try:
            found = self._value(raw)
        except msgspec.MsgspecError as error:
            raise _unreadable(self._binding.key, error) from error
        if found is None or isinstance(found, str) or (isinstance(found, int) and not isinstance(found, bool)):
            return found
        name = path_text(self._binding.key)
        raise RejectRecord("bad_key", f"{name}: expected text or an integer, found {describe(found)}")


def _array(name: str, found: object, dims: int) -> Sequence[object]:
    if not isinstance(found, list | tuple):
        raise RejectRecord("not_a_number", f"{name}: expected an array of numbers, found {describe(found)}")
    if len(found) != dims:
        raise RejectRecord("wrong_length", f"{name}: expected {dims} numbers, found {len(found)}")
    return found


def _number_or_nan(name: str, found: object) -> float:
    return nan if found is None else as_number(name, found)


def as_number(name: str, found: object) -> float:
    """A strict number as float64: no text, no boolean, no null.

    Raises:
        RejectRecord: `not_a_number`, or `out_of_range` beyond the range of float64.
    """
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise RejectRecord("not_a_number", f"{name}: expected a number, found {describe(found)}")
    try:
        return float(found)
    except OverflowError:
        raise RejectRecord("out_of_range", f"{name}: an integer beyond the range of a 64-bit float") from None


def describe(found: object) -> str:
    """A decoded value in a few words, for messages."""
    if found is None:
        return "null"
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        shown = ascii(found[: EXCERPT_BYTES // 2])
        return f"text {shown}{'...' if len(found) > EXCERPT_BYTES // 2 else ''}"
    if isinstance(found, int | float):
        return f"the number {found!r}" if not isinstance(found, int) or abs(found) < 1 << 64 else "a huge integer"
    if isinstance(found, list | tuple):
        return f"an array of {len(found)}"
    return "an object" if isinstance(found, dict) else f"a value of type {type(found).__name__}"


def _unreadable(path: Path, error: msgspec.MsgspecError) -> RejectRecord:
    if "out of range" in str(error):
        return RejectRecord("out_of_range", f"{path_text(path)}: beyond the range of a 64-bit float")
    return RejectRecord("not_decodable", f"{path_text(path)}: {error}")
