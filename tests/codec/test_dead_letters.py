"""Refused records keep what they had, say what was wrong, and always fit."""

from __future__ import annotations

import hashlib

import pytest
from codec_batches import make_batch
from codec_outputs import encoder_of
from hypothesis import given
from hypothesis import strategies as st

from kstream_worker.records import Headers, Rejects, TopicPartition


def letter(
    value: bytes | None, *, key: bytes | None = b"k", headers: Headers = (), limit: int = 10_000
) -> tuple[bytes | None, bytes | None, Headers]:
    batch = make_batch([value], keys=[key])
    batch.headers[0] = headers
    rejects = Rejects([0], ["field_missing"], ["values.temp: no such field"])
    (messages,) = encoder_of(max_dead_letter_bytes=limit).dead_letters(batch, rejects)
    return messages.keys[0], messages.values[0], messages.headers[0]


def test_a_dead_letter_is_the_record_with_the_reason_in_its_headers() -> None:
    key, value, headers = letter(b"\x00bytes")
    assert (key, value) == (b"k", b"\x00bytes")
    assert dict(headers) == {
        "__connect.errors.topic": b"telemetry",
        "__connect.errors.partition": b"2",
        "__connect.errors.offset": b"100",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"kstream_worker.worker.decode.RecordDecoder",
        "__connect.errors.exception.class.name": b"kstream_worker.errors.RejectRecord",
        "__connect.errors.exception.message": b"field_missing: values.temp: no such field",
        "__kstream.reason": b"field_missing",
    }


def test_headers_are_never_overwritten() -> None:
    own: Headers = [("__connect.errors.topic", b"older"), ("a", b"\xff"), ("a", b"2")]
    _, _, headers = letter(b"x", headers=own)
    assert headers[:3] == own
    assert [value for name, value in headers if name == "__connect.errors.topic"] == [b"older", b"telemetry"]


def test_order_keys_and_times_are_the_records_own() -> None:
    batch = make_batch([b"0", b"1", None, b"3"], keys=[b"a", b"b", None, b"d"])
    rejects = Rejects([1, 2, 3], ["not_decodable", "null_key", "too_large"], ["m"] * 3)
    (messages,) = encoder_of().dead_letters(batch, rejects)
    assert messages.partition == TopicPartition("drift-dead-letters", 2)
    assert (messages.keys, messages.values) == ([b"b", None, b"d"], [b"1", None, b"3"])
    assert messages.timestamps == batch.timestamps[1:]
    stages = [dict(headers)["__connect.errors.stage"] for headers in messages.headers]
    assert stages == [b"VALUE_CONVERTER", b"KEY_CONVERTER", b"TRANSFORMATION"]


def test_nothing_refused_is_nothing_written() -> None:
    assert encoder_of().dead_letters(make_batch([b"x"]), Rejects()) == []


def test_null_keys_are_placed_by_input_partition_where_counts_differ() -> None:
    batch = make_batch([b"x", b"y"], keys=[None, None])
    (messages,) = encoder_of(partitions=2).dead_letters(batch, Rejects([0, 1], ["null_key"] * 2, ["m"] * 2))
    assert messages.partition == TopicPartition("drift-dead-letters", 0)


def test_a_large_value_is_cut_with_its_length_and_hash() -> None:
    original = bytes(range(256)) * 100
    _, value, headers = letter(original, headers=[("trace", b"1")], limit=2_000)
    assert value is not None
    assert 1_000 < len(value) < 2_000
    assert original.startswith(value)
    found = dict(headers)
    assert found["trace"] == b"1"
    assert found["__kstream.original.length"] == b"25600"
    assert found["__kstream.original.sha256"] == hashlib.sha256(original).hexdigest().encode()


@pytest.mark.parametrize("value", [None, b"v" * 3_000])
def test_large_headers_and_keys_give_way_last(value: bytes | None) -> None:
    key, cut, headers = letter(value, key=b"k" * 3_000, headers=[("h", b"x" * 3_000)], limit=2_000)
    found = dict(headers)
    assert (found["__kstream.original.headers"], found["__kstream.original.key.length"]) == (b"1", b"3000")
    assert "h" not in found
    assert key is not None
    assert 0 < len(key) < 2_000
    assert (cut is None) == (value is None)


HEADERS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=600)), max_size=3)


@given(
    st.one_of(st.none(), st.binary(max_size=3_000)),
    st.one_of(st.none(), st.binary(max_size=1_500)),
    HEADERS,
    st.integers(1_024, 3_000),
)
def test_a_dead_letter_always_fits(value: bytes | None, key: bytes | None, own: Headers, limit: int) -> None:
    new_key, new_value, headers = letter(value, key=key, headers=own, limit=limit)
    size = len(new_key or b"") + len(new_value or b"")
    size += sum(len(name.encode()) + len(content) for name, content in headers)
    assert size <= limit
    assert (new_key is None, new_value is None) == (key is None, value is None)
    if (new_key, new_value) != (key, value):
        assert any(name.startswith("__kstream.original.") for name, _ in headers)
