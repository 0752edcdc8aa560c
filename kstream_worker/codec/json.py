"""JSON (RFC 8259), strictly: UTF-8 without a byte order mark, one object a record, nothing after it, no NaN.

Of a name that occurs twice the last value counts. Fields that are not bound are skipped, not decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kstream_worker.codec.binding import Binding
from kstream_worker.codec.columns import MAX_DEPTH, ColumnDecoder
from kstream_worker.codec.diagnose import not_decodable
from kstream_worker.codec.schema import RowSchema, row_schema

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_INNERMOST = re.compile(rb"\[\]|\{\}")
_NO_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_PASSES = 4


def json_decoder(binding: Binding) -> ColumnDecoder:
    """The decoder of JSON records."""
    return ColumnDecoder(binding, schema := row_schema(binding), _Json(schema))


class _Json:
    def __init__(self, schema: RowSchema) -> None:
        self.row = msgspec.json.Decoder(schema.type).decode
        self._members = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._value = msgspec.json.Decoder()

    def is_plain(self, values: Sequence[bytes]) -> bool:
        # n levels take 2 n bytes
        return all(map(bytes.isascii, values)) and max(map(len, values), default=0) <= 2 * MAX_DEPTH

    def screen(self, value: bytes) -> None:
        if not value.isascii():
            _check_utf8(value)
        if value.count(b"[") + value.count(b"{") > MAX_DEPTH and _is_too_deep(value):
            raise not_decodable(value, f"nested more than {MAX_DEPTH} levels deep")

    def members(self, value: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
        return self._members.decode(value)

    def value(self, member: msgspec.Raw) -> Any:
        return self._value.decode(member)


def _check_utf8(value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise not_decodable(value, f"not UTF-8 (byte {error.start})", error.start) from error


def _is_too_deep(value: bytes) -> bool:
    """Whether brackets outside of strings nest too deeply; of unbalanced ones the decoder disposes."""
    brackets = _STRING.sub(b"", value).translate(None, _NO_BRACKETS)
    for _ in range(_PASSES):  # each takes the innermost level away, which leaves little of wide data
        brackets = _INNERMOST.sub(b"", brackets)
    depth = _PASSES
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False
