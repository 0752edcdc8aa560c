"""Refused records with their original key, value, headers and time, and headers that say what was wrong.

The headers follow Kafka Connect (`__connect.errors.*`). Headers that the record already has stay as they are, also
those of an earlier refusal: a header name may occur more than once, and the last one is the newest.
"""

from __future__ import annotations

import hashlib

from kstream_worker.records import Batch, Headers

CLASS_NAME = "kstream_worker.worker.decode.RecordDecoder"
EXCEPTION_CLASS = "kstream_worker.errors.RejectRecord"

# Stages in Kafka Connect's words.
_STAGES = {"null_key": "KEY_CONVERTER", "bad_key": "KEY_CONVERTER", "too_large": "TRANSFORMATION"}
_STAGES |= {"not_finite": "TRANSFORMATION", "out_of_range": "TRANSFORMATION", "bad_timestamp": "TRANSFORMATION"}
_STAGES |= {"too_many_keys": "TRANSFORMATION", "poison": "TRANSFORMATION"}

Letter = tuple[bytes | None, bytes | None, Headers]


def dead_letter(batch: Batch, row: int, reason: str, message: str, max_bytes: int) -> Letter:
    """Key, value and headers of a dead letter.

    Args:
        batch: the batch of the refused record.
        row: its row.
        reason: why, one fixed word.
        message: why, for people.
        max_bytes: size of key, value and headers together that must not be exceeded. What is too large is cut: the
            value first, then the original headers are left out, then the key is cut; headers give the original sizes.
    """
    key, value, headers = batch.keys[row], batch.values[row], batch.headers[row]
    errors = _error_headers(batch, row, reason, message)
    if _size(key, value, headers) + _size(None, None, errors) <= max_bytes:
        return key, value, [*headers, *errors] if headers else errors
    return _cut(key, value, headers, errors, max_bytes)


def _error_headers(batch: Batch, row: int, reason: str, message: str) -> list[tuple[str, bytes]]:
    found = {
        "topic": batch.partition.topic,
        "partition": str(batch.partition.partition),
        "offset": str(batch.offsets[row]),
        "stage": _STAGES.get(reason, "VALUE_CONVERTER"),
        "class.name": CLASS_NAME,
        "exception.class.name": EXCEPTION_CLASS,
        "exception.message": f"{reason}: {message}",
    }
    named = [(f"__connect.errors.{name}", text.encode()) for name, text in found.items()]
    return [*named, ("__kstream.reason", reason.encode())]


def _cut(
    key: bytes | None, value: bytes | None, headers: Headers, errors: list[tuple[str, bytes]], max_bytes: int
) -> Letter:
    notes = [*errors]
    if value is not None:
        notes += _original("", value)
    room = max_bytes - _size(None, None, notes)
    if _size(key, None, headers) > room:
        notes.append(("__kstream.original.headers", str(len(headers)).encode()))
        room = max_bytes - _size(None, None, notes)
        headers = ()
    if key is not None and len(key) > room:
        notes += _original("key.", key)
        key = key[: max(0, max_bytes - _size(None, None, notes))]
    room = max_bytes - _size(key, None, [*headers, *notes])
    return key, None if value is None else value[: max(0, room)], [*headers, *notes]


def _original(part: str, content: bytes) -> list[tuple[str, bytes]]:
    return [
        (f"__kstream.original.{part}length", str(len(content)).encode()),
        (f"__kstream.original.{part}sha256", hashlib.sha256(content).hexdigest().encode()),
    ]


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    return len(key or b"") + len(value or b"") + sum(len(name) + len(content) for name, content in headers)
