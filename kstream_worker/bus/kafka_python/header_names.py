"""Records with a header whose name is not UTF-8: brokers take them, kafka-python raises on them at each poll anew."""

from __future__ import annotations

from typing import Any

from kafka.errors import CorruptRecordError
from kafka.record import util
from kafka.record.default_records import DefaultRecordBatch

from kstream_worker.bus.common.header_names import UNREADABLE, warn

FIELDS_BEFORE_KEY = 3  # attributes, time, offset
# Neither has types.
_batches: Any = DefaultRecordBatch
_varints: Any = util

_read = _batches._read_msg


def leave_out_if_unreadable(error: BaseException) -> bool:
    """Read such records without their headers from now on, in this process.

    The client has no place for it: its parser of a record is replaced, once the first such record is met.

    Args:
        error: what a poll raised.

    Returns:
        Whether the error is of this kind; a repeated poll reads on.
    """
    unreadable = isinstance(error, CorruptRecordError) and UnicodeDecodeError.__name__ in str(error)
    if unreadable:
        _batches._read_msg = _read_anyhow
    return unreadable


def _read_anyhow(batch: Any) -> Any:
    """The next record of a batch; where the name of a header is no text, the record is parsed anew without headers."""
    try:
        return _read(batch)
    except UnicodeDecodeError:
        buffer, start = batch._buffer, batch._pos
        length, body = _varints.decode_varint(buffer, start)
        batch._buffer, batch._pos = _without_headers(buffer[body : body + length]), 0
        try:
            record = _read(batch)
        finally:
            batch._buffer, batch._pos = buffer, body + length
        warn(record.offset)
        return record


def _without_headers(record: bytes) -> bytearray:
    """A record and its length, written anew with one header that says what is missing."""
    headers = 0
    for _ in range(FIELDS_BEFORE_KEY):
        _, headers = _varints.decode_varint(record, headers)
    for _ in ("key", "value"):
        size, headers = _varints.decode_varint(record, headers)
        headers += max(size, 0)
    written = bytes(record[:headers]) + _encoded(UNREADABLE)
    return bytearray(_varint(len(written)) + written)


def _encoded(headers: list[tuple[str, bytes]]) -> bytes:
    texts = (text for name, value in headers for text in (name.encode(), value))
    return _varint(len(headers)) + b"".join(_varint(len(text)) + text for text in texts)


def _varint(value: int) -> bytes:
    written = bytearray()
    _varints.encode_varint(value, written.append)
    return bytes(written)
