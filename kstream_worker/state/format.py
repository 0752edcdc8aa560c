"""The records of the state topic, as bytes.

Each partition of the state topic belongs to the input partition of the same number and holds

    key 00           one *header*: how far the partition is committed, and what is needed to go on from there
    key 01 + <key>   a *snapshot* of one key of the input: its model, and the input position that it stands for

A value is MessagePack: the list [format, head, checksum, model]. The head is a map in MessagePack; the checksum is the
CRC-32 of the head, begun with the number of the format. The model of a snapshot is the bank's own snapshot, which
carries its own CRC-32, in one LZ4 block with its length in front: rows of keys that warm up are mostly zeros. A header
has an empty model. A null value says that a key is gone.

Format 1 is what this release writes unless `state.format` says otherwise. Format 2 adds to a snapshot what its alarm
said when it was raised. All formats are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import lz4.block
import msgpack

from kstream_worker.errors import Fatal

FORMATS = (1, 2)
HEADER_KEY = b"\x00"
KEY_PREFIX = b"\x01"
POSITION_HEADER = "input_offset"  # of a tombstone: the input position at which its key went

_MAX_MODEL_BYTES = 64 * 2**20


class CorruptState(ValueError):
    """A state record that cannot be read: cut or damaged."""


class NewerState(Fatal):
    """A state record of a format that is newer than this release: no damage, and nothing to be thrown away."""


@dataclass(frozen=True, slots=True)
class Header:
    """How far a partition is committed; written with each commit, in the same transaction.

    Attributes:
        token: of that commit, also in the metadata of the group's offset.
        cluster_id: of the bus that the offsets belong to.
        topic_id: of the input topic; empty when unknown.
        offset: the committed input position.
        replay_from: the input position from which records are read again; not above `offset`.
        clock_ms: the partition's event-time clock at `replay_from`; -1 before the first event time.
        closed: input offsets [from, to) at which new keys were refused, `to` -1 where that lasts; from `replay_from`
            on.
        arls: (offset, arl): the average run length that holds from that input offset on; the first entry holds at
            `replay_from`.
        rejected: offsets of records that were given up because they ended the process, from `replay_from` on.
        attempts: starts at `offset` that led to no commit beyond it.
        trial: the offset of the one record that is being tried alone; -1 for none.
        deaths: how often that trial did not come back.
        triers: static names of those who announced it.
        snapshots: keys that have one in the state topic, at least; fewer found mean that the topic lost some.
        model_epoch: `app.model_epoch` when this was written.
        generation: only snapshots of the same number belong to this header.
        pipeline: fingerprint of what shapes samples and the life of keys.
        bank: fingerprint of the models.
        numerics: version of the arithmetic.
        release: of the program, for people.
    """

    token: str
    cluster_id: str
    topic_id: str
    offset: int
    replay_from: int
    clock_ms: int = -1
    closed: tuple[tuple[int, int], ...] = ()
    arls: tuple[tuple[int, float], ...] = ()
    rejected: tuple[int, ...] = ()
    attempts: int = 0
    trial: int = -1
    deaths: int = 0
    triers: tuple[str, ...] = ()
    snapshots: int = 0
    model_epoch: int = 1
    generation: int = 0
    pipeline: str = ""
    bank: str = ""
    numerics: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one key.

    Attributes:
        position: all records of the key below this input offset are in the model.
        seen_ms: the partition's event-time clock at the key's last record; -1 before the first event time.
        generation: see `Header`.
        model: the bank's snapshot, byte for byte.
        alarm: what the key's alarm said when it was raised, if it is up; JSON-compatible. Empty in format 1.
    """

    position: int
    seen_ms: int
    generation: int
    model: bytes
    alarm: Mapping[str, object] = field(default_factory=dict)


def state_key(key: bytes) -> bytes:
    """The key of a snapshot's record."""
    return KEY_PREFIX + key


def input_key(record_key: bytes | None) -> bytes | None:
    """The key that a record of the state topic is about; None for a header.

    Raises:
        CorruptState: no key of a state record.
    """
    if record_key == HEADER_KEY:
        return None
    if not record_key or record_key[:1] != KEY_PREFIX:
        raise CorruptState(f"{record_key!r} is no key of a state record")
    return record_key[1:]


def encode_header(header: Header, format: int) -> bytes:
    """A header's value."""
    head = {name: getattr(header, name) for name in Header.__slots__}
    return _pack(format, head, b"")


def encode_snapshot(snapshot: Snapshot, format: int) -> bytes:
    """A snapshot's value."""
    head: dict[str, object] = {
        "position": snapshot.position,
        "seen_ms": snapshot.seen_ms,
        "generation": snapshot.generation,
    }
    if format >= 2:
        head["alarm"] = dict(snapshot.alarm)
    return _pack(format, head, lz4.block.compress(snapshot.model))


def decode_header(value: bytes) -> Header:
    """A header from its value.

    Raises:
        CorruptState: damaged, or of an unknown format.
    """
    head, _ = _unpack(value)
    try:
        head["closed"] = tuple((int(first), int(last)) for first, last in head["closed"])
        head["arls"] = tuple((int(offset), float(arl)) for offset, arl in head["arls"])
        head["rejected"] = tuple(map(int, head["rejected"]))
        head["triers"] = tuple(map(str, head.get("triers", ())))
        # Fields of a later release are none of ours: both may write to one topic while one takes over from the other.
        return Header(**{name: value for name, value in head.items() if name in Header.__slots__})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"no header of this release: {error}") from error


def decode_snapshot(value: bytes) -> Snapshot:
    """A snapshot from its value; the model's own checksum is checked by the bank.

    Raises:
        CorruptState: damaged, or of an unknown format.
    """
    head, model = _unpack(value)
    if int.from_bytes(model[:4], "little") > _MAX_MODEL_BYTES:
        raise CorruptState("the model is longer than any")
    try:
        return Snapshot(model=lz4.block.decompress(model), **head)
    except (lz4.block.LZ4BlockError, TypeError, ValueError) as error:
        raise CorruptState(f"no snapshot of this release: {error}") from error


def _pack(format: int, head: Mapping[str, object], model: bytes) -> bytes:
    if format not in FORMATS:
        raise ValueError(f"state format {format} is unknown; this release writes {FORMATS}")
    packed = msgpack.packb(head)
    value: bytes = msgpack.packb([format, packed, zlib.crc32(packed, format), model])
    return value


def _unpack(value: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        format, packed, crc, model = msgpack.unpackb(value)
        found = zlib.crc32(packed, format)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise CorruptState(f"no state record: {error}") from error
    if found != crc or not isinstance(model, bytes) or not isinstance(format, int):
        raise CorruptState("damaged: the checksum does not fit")
    if format not in FORMATS:
        raise NewerState(
            f"the state is of format {format}, this release reads {' and '.join(map(str, FORMATS))}: run the newer "
            "release that wrote it (with `state.format` at a lower number first, to go back afterwards)"
        )
    head = msgpack.unpackb(packed)
    if not isinstance(head, dict):
        raise CorruptState("no state record: the head is no map")
    return head, model
