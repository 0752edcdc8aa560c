"""The bytes of the state topic: what is written is read, what is damaged is found, and older readers read on."""

from __future__ import annotations

import zlib
from typing import Any

import lz4.block
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.detectors.ranks import RankBank
from kstream_worker.state.format import (
    FORMATS,
    HEADER_KEY,
    CorruptState,
    Header,
    NewerState,
    Snapshot,
    decode_header,
    decode_snapshot,
    encode_header,
    encode_snapshot,
    input_key,
    state_key,
)

offsets = st.integers(0, 2**62)
texts = st.text(max_size=12)
headers = st.builds(
    Header,
    token=texts,
    cluster_id=texts,
    topic_id=texts,
    offset=offsets,
    replay_from=offsets,
    clock_ms=st.integers(-1, 2**62),
    closed=st.lists(st.tuples(offsets, st.integers(-1, 2**62)), max_size=3).map(tuple),
    arls=st.lists(st.tuples(offsets, st.floats(1.5, 1e300)), max_size=3).map(tuple),
    rejected=st.lists(offsets, max_size=3).map(tuple),
    attempts=st.integers(0, 99),
    trial=st.integers(-1, 2**62),
    deaths=st.integers(-1, 3),
    triers=st.lists(texts, max_size=3).map(tuple),
    model_epoch=st.integers(1, 99),
    generation=st.integers(0, 99),
    pipeline=texts,
    bank=texts,
    numerics=texts,
    release=texts,
)
alarms = st.dictionaries(texts, st.one_of(texts, st.integers(-(2**53), 2**53), st.floats(allow_nan=False)), max_size=3)
snapshots = st.builds(
    Snapshot,
    position=offsets,
    seen_ms=st.integers(-1, 2**62),
    generation=st.integers(0, 99),
    model=st.binary(max_size=400),
    alarm=alarms,
)
formats = st.sampled_from(FORMATS)


@settings(deadline=None)
@given(headers, formats)
def test_a_header_is_read_as_it_was_written(header: Header, format: int) -> None:
    assert decode_header(encode_header(header, format)) == header


@settings(deadline=None)
@given(snapshots, formats)
def test_a_snapshot_is_read_as_it_was_written(snapshot: Snapshot, format: int) -> None:
    found = decode_snapshot(encode_snapshot(snapshot, format))
    assert (found.position, found.seen_ms, found.generation) == (
        snapshot.position,
        snapshot.seen_ms,
        snapshot.generation,
    )
    assert found.model == snapshot.model
    assert found.alarm == (snapshot.alarm if format >= 2 else {})


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_anything_else_is_refused_and_nothing_worse(value: bytes) -> None:
    for decode in (decode_header, decode_snapshot):
        with pytest.raises(CorruptState):
            decode(value)


def model() -> tuple[RankBank, bytes]:
    bank = RankBank(1, arl=20.0, warmup=20, dependence="none")
    slot = bank.allocate(b"a")
    rng = np.random.default_rng(5)
    bank.update(np.full(40, slot), None, rng.standard_normal((40, 1)), np.arange(40, dtype=np.int64))
    return bank, bank.snapshot(slot)


@pytest.mark.parametrize("format", FORMATS)
def test_no_flipped_bit_and_no_cut_reaches_a_model(format: int) -> None:
    """What the envelope cannot see, the bank does."""
    bank, row = model()
    whole = encode_snapshot(Snapshot(7, 8, 0, row, {"offset": 3} if format >= 2 else {}), format)
    slot = bank.allocate(b"b")
    original = decode_snapshot(whole)
    harmless = 0
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    damaged += [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(0, len(whole), 3)]
    for value in damaged:
        try:
            found = decode_snapshot(value)
            bank.restore(slot, found.model)
        except ValueError:
            continue
        assert found == original  # another LZ4 encoding of the same bytes: a copy from elsewhere in a run of zeros
        harmless += 1
    assert harmless < len(damaged) / 4


@pytest.mark.parametrize("format", FORMATS)
def test_no_flipped_bit_of_a_header_is_overlooked(format: int) -> None:
    header = Header("token", "cluster", "topic", 9, 5, arls=((5, 2.5),))
    whole = encode_header(header, format)
    for i in range(len(whole)):
        for bit in range(8):
            value = whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :]
            with pytest.raises(CorruptState):
                decode_header(value)


def test_a_newer_format_is_named() -> None:
    newer = msgpack.packb([3, b"", zlib.crc32(b"", 3), b""])
    with pytest.raises(NewerState, match=r"state is of format 3.*run the newer release"):
        decode_snapshot(newer)
    with pytest.raises(ValueError, match="state format 3 is unknown"):
        encode_header(Header("", "", "", 0, 0), 3)


def test_a_model_that_claims_to_be_endless_is_not_unpacked() -> None:
    head = msgpack.packb({"position": 1, "seen_ms": 2, "generation": 0})
    value = msgpack.packb([1, head, zlib.crc32(head, 1), b"\xff\xff\xff\x7f" + b"\x00" * 20])
    with pytest.raises(CorruptState, match="longer than any"):
        decode_snapshot(value)


def test_keys_tell_headers_from_snapshots_and_both_from_others() -> None:
    assert input_key(HEADER_KEY) is None
    for key in (b"", b"\x00", b"pump", b"\x01\x01"):
        assert input_key(state_key(key)) == key
    for stranger in (None, b"", b"\x00\x00", b"\x07foreign", b"pump"):
        with pytest.raises(CorruptState, match="no key of a state record"):
            input_key(stranger)


# -- the former release, frozen: not to be changed together with the code that it reads the output of --


def read_format_1(value: bytes) -> tuple[dict[str, Any], bytes]:
    format, packed, crc, block = msgpack.unpackb(value)
    if format != 1 or zlib.crc32(packed, 1) != crc:
        raise ValueError("not readable")
    head = msgpack.unpackb(packed)
    if not block:
        return head, b""
    length = int.from_bytes(block[:4], "little")
    unpacked = lz4.block.decompress(block[4:], uncompressed_size=length)
    return head, unpacked


HEADER_FIELDS_1 = {
    "token": str,
    "cluster_id": str,
    "topic_id": str,
    "offset": int,
    "replay_from": int,
    "clock_ms": int,
    "closed": list,
    "arls": list,
    "rejected": list,
    "attempts": int,
    "trial": int,
    "deaths": int,
    "triers": list,
    "snapshots": int,
    "model_epoch": int,
    "generation": int,
    "pipeline": str,
    "bank": str,
    "numerics": str,
    "release": str,
}


@settings(deadline=None)
@given(snapshots, headers)
def test_the_former_release_reads_what_is_written_by_default(snapshot: Snapshot, header: Header) -> None:
    head, unpacked = read_format_1(encode_snapshot(snapshot, 1))
    assert head == {"position": snapshot.position, "seen_ms": snapshot.seen_ms, "generation": snapshot.generation}
    assert unpacked == snapshot.model
    head, unpacked = read_format_1(encode_header(header, 1))
    assert {name: type(value) for name, value in head.items()} == HEADER_FIELDS_1
    assert (head["token"], head["offset"], head["replay_from"]) == (header.token, header.offset, header.replay_from)
    assert unpacked == b""


def test_the_default_is_the_former_format() -> None:
    from kstream_worker.config.state import StateConfig

    assert StateConfig().format == 1
