"""Sizes of messages, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kstream_worker.errors import ConfigError
from kstream_worker.records import Headers, Messages

MAX_OVERHEAD_BYTES = 128  # of a batch and of one record without headers

RecordSize = Callable[[bytes | None, bytes | None, Headers], int]


def check_sizes(messages: Sequence[Messages], limit_bytes: int, setting: str, record_size: RecordSize) -> int:
    """Refuse messages that the client would refuse in the middle of a transaction.

    Args:
        messages: what is to be sent.
        limit_bytes: the producer's limit; sizes are those before compression.
        setting: what the client calls it.
        record_size: bytes of one record (key, value, headers) as the client counts them.

    Returns:
        bytes that no message exceeds.

    Raises:
        ConfigError: a message is too large; sending it again cannot help.
    """
    longest = 0
    for column in messages:
        bound = upper_bound(column)
        longest = max(longest, bound)
        if bound > limit_bytes:
            _check_each(column, limit_bytes, setting, record_size)
    return longest


def upper_bound(messages: Messages) -> int:
    """A size that no message of the column exceeds, cheap to find."""
    longest_value = max(map(len, filter(None, messages.values)), default=0)
    longest_key = max(map(len, filter(None, messages.keys)), default=0)
    longest_headers = max(map(headers_bound, filter(None, messages.headers)), default=0)
    return MAX_OVERHEAD_BYTES + longest_value + longest_key + longest_headers


def headers_bound(headers: Headers) -> int:
    """A size that these headers do not exceed."""
    return sum(10 + 4 * len(name) + len(value) for name, value in headers)


def _check_each(messages: Messages, limit_bytes: int, setting: str, record_size: RecordSize) -> None:
    for key, value, headers in zip(messages.keys, messages.values, messages.headers, strict=True):
        size = record_size(key, value, headers)
        if size > limit_bytes:
            raise ConfigError(
                f"a message of {size} bytes for {messages.partition} exceeds the producer's {setting} of "
                f"{limit_bytes}: raise it, and the topic's max.message.bytes with it, or publish less per message"
            )
