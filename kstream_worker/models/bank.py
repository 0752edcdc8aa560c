"""What every bank of models stands on: one contiguous row of state per key, snapshots of rows, checks of input.

A bank holds the models of many keys as rows of three matrices (float64, int64, int16). All that a sample touches lies
together in memory, and to reset, to snapshot or to restore a key is one copy of its row.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.memory import RowMemory, put_rows
from kstream_worker.numerics.random import stream_of
from kstream_worker.records import FloatMatrix, IntColumn

SNAPSHOT_VERSION = 1
STREAM = 0  # column of `SlotArrays.ints` that holds the key's random stream number

_CRC_BYTES = 4


def fingerprint_of(settings: Mapping[str, object]) -> str:
    """A short name of all settings that shape state: equal exactly when the settings are equal.

    Args:
        settings: JSON-compatible values (numbers, texts, booleans, None, lists, mappings of these).
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def seal(kind: str, fingerprint: str, **parts: bytes) -> bytes:
    """A snapshot: a msgpack map (version, kind, configuration, the parts by name), then its CRC-32."""
    body: bytes = msgpack.packb({"version": SNAPSHOT_VERSION, "kind": kind, "config": fingerprint, **parts})
    return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")


def unseal(kind: str, fingerprint: str, snapshot: bytes) -> dict[str, Any]:
    """The parts of a snapshot by name.

    Raises:
        ValueError: damaged, or of another format version, kind or configuration.
    """
    body, crc = memoryview(snapshot)[:-_CRC_BYTES], snapshot[-_CRC_BYTES:]
    if len(snapshot) <= _CRC_BYTES or zlib.crc32(body) != int.from_bytes(crc, "little"):
        raise ValueError(f"snapshot of {kind}: damaged (its checksum does not fit)")
    envelope = msgpack.unpackb(body)
    if not isinstance(envelope, dict):
        raise ValueError(f"snapshot of {kind}: not a snapshot of a bank")  # noqa: TRY004
    for name, found, expected in (
        ("format version", envelope.get("version"), SNAPSHOT_VERSION),
        ("kind", envelope.get("kind"), kind),
        ("configuration", envelope.get("config"), fingerprint),
    ):
        if found != expected:
            raise ValueError(f"snapshot of {kind}: {name} is {found!r} where {expected!r} is expected")
    return envelope


class SlotArrays:
    """Rows of state, one per key, with a free list and growth by half.

    The matrices are replaced when the bank grows: never keep one of them (or a view) across `allocate`.

    Attributes:
        floats: float64[capacity, nf].
        ints: int64[capacity, ni]; column `STREAM` (0) is the key's random stream number, `numpy.uint64` viewed as
            int64.
        shorts: int16[capacity, nb].
        live: bool[capacity], whether the slot is allocated.

    Args:
        kind: name of the kind of bank, written into snapshots.
        fingerprint: of the settings that shape state (`fingerprint_of`), written into snapshots. The seed belongs to
            it.
        seed: of all random draws, from -2**63 to 2**63 - 1.
        floats: nf, may be 0.
        ints: ni, at least 1.
        shorts: nb, may be 0.
        capacity: rows at the start.
    """

    def __init__(
        self,
        kind: str,
        fingerprint: str,
        seed: int,
        *,
        floats: int,
        ints: int,
        shorts: int = 0,
        capacity: int = 16,
    ) -> None:
        if ints < 1:
            raise ValueError("a row needs at least one int64: column 0 holds the random stream number")
        self.kind = kind
        self.fingerprint = fingerprint
        self.seed = seed
        capacity = max(1, capacity)
        self._memory = RowMemory(np.float64, floats), RowMemory(np.int64, ints), RowMemory(np.int16, shorts)
        self.floats, self.ints, self.shorts = (memory.matrix(capacity) for memory in self._memory)
        self.live: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self._free = list(range(capacity - 1, -1, -1))
        self._touched = 0  # rows from here on were never used

    def __len__(self) -> int:
        """Allocated slots."""
        return len(self.live) - len(self._free)

    @property
    def bytes_per_key(self) -> int:
        """Bytes of one row, constant."""
        return int(8 * self.floats.shape[1] + 8 * self.ints.shape[1] + 2 * self.shorts.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, free ones included."""
        return self.floats.nbytes + self.ints.nbytes + self.shorts.nbytes

    def allocate(self, key: bytes) -> int:
        """A zeroed row for this key, its stream number set; the matrices may be replaced by larger ones."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.live[slot] = True
        if slot < self._touched:
            self._zero(slot)
        else:
            self._touched = slot + 1  # fresh rows are taken in order
        self.ints[slot, STREAM] = np.array(stream_of(self.seed, key)).view(np.int64)
        return slot

    def free(self, slot: int) -> None:
        """Give the row back.

        Raises:
            ValueError: the slot is not allocated.
        """
        self._require(slot)
        self.live[slot] = False
        self._free.append(slot)

    def reset(self, slot: int) -> None:
        """Zero the row, all but its stream number: the key starts afresh (its draws repeat)."""
        self._require(slot)
        stream = self.ints[slot, STREAM]
        self._zero(slot)
        self.ints[slot, STREAM] = stream

    def snapshot(self, slot: int) -> bytes:
        """The row as bytes: `seal` of three little-endian arrays.

        Raises:
            ValueError: the slot is not allocated.
        """
        self._require(slot)
        return seal(
            self.kind,
            self.fingerprint,
            floats=self.floats[slot].astype("<f8", copy=False).tobytes(),
            ints=self.ints[slot].astype("<i8", copy=False).tobytes(),
            shorts=self.shorts[slot].astype("<i2", copy=False).tobytes(),
        )

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a snapshot into an allocated row, the stream number included; nothing changes when it is refused.

        Raises:
            ValueError: damaged, of another format version, kind or configuration, or the slot is not allocated.
        """
        self._require(slot)
        envelope = unseal(self.kind, self.fingerprint, snapshot)
        matrices, rows = (self.floats, self.ints, self.shorts), []
        for name, dtype, matrix in zip(("floats", "ints", "shorts"), ("<f8", "<i8", "<i2"), matrices, strict=True):
            data, expected = envelope.get(name, b""), matrix.shape[1] * matrix.itemsize
            if len(data) != expected:
                raise ValueError(f"snapshot of {self.kind}: a row of {len(data)} bytes where {expected} are expected")
            rows.append(data if sys.byteorder == "little" else np.frombuffer(data, dtype).byteswap().tobytes())
        put_rows(slot, matrices, rows)

    def check_pairs(
        self,
        slots: IntColumn,
        x: FloatMatrix | None,
        y: FloatMatrix,
        times: IntColumn,
        dims: int,
        *,
        x_dims: int | None = None,
        missing: bool = False,
    ) -> tuple[IntColumn, FloatMatrix, FloatMatrix, IntColumn]:
        """The arguments of `Bank.update` of a two-sided bank, C-contiguous, of the right types.

        Args:
            slots: int64[n], allocated.
            x: float64[n, x_dims], finite.
            y: float64[n, dims], finite.
            times: int64[n], milliseconds.
            dims: features of y.
            x_dims: features of x; as many as of y by default.
            missing: whether y may hold NaN.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a value is not finite; says which.
        """
        if x is None:
            raise ValueError("x is missing: this bank takes pairs, x and y")
        slots, y, times = self.check_samples(slots, y, times, dims, missing=missing)
        return slots, _matrix("x", x, len(slots), dims if x_dims is None else x_dims), y, times

    def check_samples(
        self, slots: IntColumn, y: FloatMatrix, times: IntColumn, dims: int, *, missing: bool = False
    ) -> tuple[IntColumn, FloatMatrix, IntColumn]:
        """As `check_pairs`, of a one-sided bank: `slots, y, times`."""
        slots = _column("slots", slots)
        times = _column("times", times)
        if len(times) != len(slots):
            raise ValueError(f"times has {len(times)} entries where slots has {len(slots)}")
        y = _matrix("y", y, len(slots), dims, missing=missing)
        if len(slots) and (slots.min() < 0 or slots.max() >= len(self.live) or not self.live[slots].all()):
            raise ValueError("slots names a slot that is not allocated; call allocate(key) first")
        return slots, y, times

    def _require(self, slot: int) -> None:
        if not 0 <= slot < len(self.live) or not self.live[slot]:
            raise ValueError(f"slot {slot} is not allocated")

    def _zero(self, slot: int) -> None:
        matrices = self.floats, self.ints, self.shorts
        put_rows(slot, matrices, [bytes(matrix.shape[1] * matrix.itemsize) for matrix in matrices])

    def _grow(self) -> None:
        old = len(self.live)
        new = old + max(old // 2, 8)
        del self.floats, self.ints, self.shorts  # with them there, the memory cannot grow in its place
        self.floats, self.ints, self.shorts = (memory.matrix(new) for memory in self._memory)
        self.live = np.concatenate((self.live, np.zeros(new - old, dtype=np.bool_)))
        self._free.extend(range(new - 1, old - 1, -1))


class SlotMap:
    """Which slot of a bank within belongs to a slot of the bank around it: they need not hand out the same ones."""

    def __init__(self) -> None:
        self._inner = np.full(64, -1, dtype=np.int64)

    def put(self, slot: int, inner: int) -> None:
        """From now on `slot` stands for `inner`."""
        if slot >= len(self._inner):
            more = np.full(max(len(self._inner) // 2, slot + 1 - len(self._inner)), -1, dtype=np.int64)
            self._inner = np.concatenate((self._inner, more))
        self._inner[slot] = inner

    def one(self, slot: int) -> int:
        """The inner slot."""
        return int(self._inner[slot])

    def all(self, slots: IntColumn) -> IntColumn:
        """The inner slots, int64[n]."""
        return self._inner[slots]


class SlotBank:
    """What the banks share of `ports.Bank`: their slots. A bank adds its threshold, its walk and its alarms.

    Args:
        slots: the rows of its keys.
    """

    def __init__(self, slots: SlotArrays) -> None:
        self._slots = slots

    @property
    def slots(self) -> SlotArrays:
        """The rows of its keys."""
        return self._slots

    @property
    def bytes_per_key(self) -> int:
        """Bytes that one slot takes, constant."""
        return self._slots.bytes_per_key

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, free slots included."""
        return self._slots.nbytes

    @property
    def fingerprint(self) -> str:
        """Kind and configuration: snapshots go only between banks of equal fingerprints."""
        return f"{self._slots.kind}:{self._slots.fingerprint}"

    def allocate(self, key: bytes) -> int:
        """A fresh slot for this key, warming up; its draws are functions of (seed, key, number of the sample)."""
        return self._slots.allocate(key)

    def free(self, slot: int) -> None:
        """Give the slot back.

        Raises:
            ValueError: the slot is not allocated.
        """
        self._slots.free(slot)

    def guarantee(self, slot: int) -> tuple[str, str] | None:  # noqa: ARG002
        """None: there are no alarms."""
        return None

    def snapshot(self, slot: int) -> bytes:
        """All of the slot's state as bytes.

        Raises:
            ValueError: the slot is not allocated.
        """
        return self._slots.snapshot(slot)

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a snapshot of a bank of the same settings into an allocated slot.

        A detector's `arl` and feature names are no part of the settings: they may differ.

        Raises:
            ValueError: damaged, of another format or of other settings; nothing has changed.
        """
        self._slots.restore(slot, snapshot)


def _column(name: str, values: IntColumn) -> IntColumn:
    column = np.require(
        values, requirements=("C", "W")
    )  # a read-only array is another type: it would be compiled for again
    if column.ndim != 1 or (len(column) and column.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a column of integers, not {column.dtype} of shape {column.shape}")
    return column.astype(np.int64, copy=False)


def _matrix(name: str, values: FloatMatrix, rows: int, dims: int, *, missing: bool = False) -> FloatMatrix:
    matrix = np.require(values, np.float64, ("C", "W"))
    if matrix.shape != (rows, dims):
        raise ValueError(f"{name} must have the shape ({rows}, {dims}), not {matrix.shape}")
    usable = ~np.isinf(matrix) if missing else np.isfinite(matrix)
    if not usable.all():
        row, column = np.argwhere(~usable)[0]
        raise ValueError(f"{name}[{row}, {column}] is {matrix[row, column]}; only finite numbers reach a model")
    return matrix
