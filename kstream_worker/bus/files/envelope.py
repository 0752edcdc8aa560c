r"""How an output record becomes one line of JSON, and back.

*Plain*: a value that is a JSON object on one line, that names its own key in `key` or `key_b64`, and has no headers,
is the line. The record time is not written then: payloads carry their event time.

*Envelope*: anything else, dead letters above all, becomes
`{"record": {"key": .., "value": .., "timestamp": .., "headers": [{"name": .., "value": ..}]}}`. Bytes that are UTF-8
are written as text under the name given, other bytes in base64 under that name with the suffix `_b64`, so every byte
can be had back. Null is null; `timestamp` is in milliseconds, -1 when unknown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from kstream_worker.records import Headers


class OutputRecord(NamedTuple):
    """A record read back from an output file; `timestamp` is None on plain lines."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers


class _Named(msgspec.Struct, gc=False):
    key: str | UnsetType | None = UNSET
    key_b64: str | UnsetType = UNSET
    record: msgspec.Raw | UnsetType = UNSET


_named = msgspec.json.Decoder(_Named)
_encode = msgspec.json.Encoder().encode


def encode_line(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> bytes:
    """One line without its end."""
    if value is not None and not headers and _is_plain(key, value):
        return value
    record: dict[str, Any] = {
        **_field("key", key),
        **_field("value", value),
        "timestamp": timestamp,
        "headers": [{"name": name, **_field("value", content)} for name, content in headers],
    }
    return _encode({"record": record})


def decode_line(line: bytes) -> OutputRecord:
    """The record of a line that `encode_line` made.

    Raises:
        ValueError: no such line.
    """
    named = _named.decode(line)
    if isinstance(named.record, UnsetType):
        return OutputRecord(_key_of(named), line, None, ())
    record = msgspec.json.decode(named.record)
    headers = tuple((header["name"], _content(header, "value") or b"") for header in record["headers"])
    return OutputRecord(_content(record, "key"), _content(record, "value"), record["timestamp"], headers)


def read_output(path: str | Path) -> Iterator[OutputRecord]:
    """The records of an output file, in order."""
    with Path(path).open("rb") as lines:
        for line in lines:
            yield decode_line(line.rstrip(b"\n"))


def name_output(line: bytes, topic: str) -> bytes:
    """The line with a first field `output` that names its topic, for where all topics share one stream."""
    rest = line[1:].lstrip()
    return b'{"output":' + _encode(topic) + (rest if rest == b"}" else b"," + rest)


def _is_plain(key: bytes | None, value: bytes) -> bool:
    if not value.startswith(b"{") or b"\n" in value or b"\r" in value or not _is_utf8(value):
        return False
    try:
        named = _named.decode(value)
        return isinstance(named.record, UnsetType) and _key_of(named) == key
    except ValueError:
        return False


def _key_of(named: _Named) -> bytes | None:
    if isinstance(named.key_b64, str):
        return base64.b64decode(named.key_b64, validate=True)
    return named.key.encode() if isinstance(named.key, str) else None


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    if _is_utf8(content):
        return {name: content.decode()}
    return {f"{name}_b64": base64.b64encode(content).decode()}


def _content(record: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_b64" in record:
        return base64.b64decode(record[f"{name}_b64"], validate=True)
    text: str | None = record[name]
    return None if text is None else text.encode()
