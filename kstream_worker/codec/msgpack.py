"""MessagePack, strictly: one map with text keys a record, nothing after it. Fields that are not bound are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kstream_worker.codec.binding import Binding
from kstream_worker.codec.columns import MAX_DEPTH, ColumnDecoder
from kstream_worker.codec.diagnose import not_decodable
from kstream_worker.codec.schema import RowSchema, row_schema

_ARRAYS_AND_MAPS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_OTHERS = bytes(sorted(set(range(256)) - set(_ARRAYS_AND_MAPS)))
# Bytes after the type byte: fixed sizes, and the width of a length that is followed by so many bytes (+1: and a type).
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_SIZED |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}


def msgpack_decoder(binding: Binding) -> ColumnDecoder:
    """The decoder of MessagePack records."""
    return ColumnDecoder(binding, schema := row_schema(binding), _MessagePack(schema))


class _MessagePack:
    def __init__(self, schema: RowSchema) -> None:
        self.row = msgspec.msgpack.Decoder(schema.type).decode
        self._members = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
        self._value = msgspec.msgpack.Decoder()

    def is_plain(self, values: Sequence[bytes]) -> bool:
        # a level takes one byte
        return max(map(len, values), default=0) <= MAX_DEPTH

    def screen(self, value: bytes) -> None:
        if len(value.translate(None, _OTHERS)) > MAX_DEPTH and _is_too_deep(value):
            raise not_decodable(value, f"nested more than {MAX_DEPTH} levels deep")

    def members(self, value: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
        return self._members.decode(value)

    def value(self, member: msgspec.Raw) -> Any:
        return self._value.decode(member)


def _is_too_deep(value: bytes) -> bool:
    """Walk the types without recursion; a damaged value is left to the decoder, which stops at the same place."""
    open_items = [1]  # items still to come on each level
    at = 0
    while open_items and at < len(value):
        if open_items[-1] == 0:
            open_items.pop()
            continue
        open_items[-1] -= 1
        items, at = _step(value, at)
        if items:
            open_items.append(items)
            if len(open_items) > MAX_DEPTH + 1:
                return True
    return False


def _step(value: bytes, at: int) -> tuple[int, int]:
    """Items that the value at `at` holds (0 where it is none), and where the next one starts."""
    kind = value[at]
    at += 1
    if 0x80 <= kind <= 0x8F:
        return 2 * (kind & 0x0F), at
    if 0x90 <= kind <= 0x9F:
        return kind & 0x0F, at
    if 0xA0 <= kind <= 0xBF:
        return 0, at + (kind & 0x1F)
    if 0xDC <= kind <= 0xDF:
        width = 2 if kind in {0xDC, 0xDE} else 4
        items = int.from_bytes(value[at : at + width], "big")
        return items * (2 if kind >= 0xDE else 1), at + width
    if kind in _SIZED:
        width, extra = _SIZED[kind]
        return 0, at + width + extra + int.from_bytes(value[at : at + width], "big")
    return 0, at + _FIXED.get(kind, 0)
