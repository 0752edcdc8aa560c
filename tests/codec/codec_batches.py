"""Batches from bytes, and decoders as the worker makes them."""

from __future__ import annotations

from collections.abc import Sequence

from kstream_worker.codec import DECODERS, Binding
from kstream_worker.gate import Gate
from kstream_worker.pairing import pairing_of
from kstream_worker.records import Batch, TopicPartition
from kstream_worker.worker.decode import RecordDecoder

BUS_TIME = 1_700_000_000_000


def make_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    first: int = 100,
) -> Batch:
    n = len(values)
    return Batch(
        partition=TopicPartition("telemetry", 2),
        offsets=[first + i for i in range(n)],
        timestamps=list(timestamps) if timestamps is not None else [BUS_TIME + first + i for i in range(n)],
        keys=list(keys) if keys is not None else [b"pump-7"] * n,
        values=list(values),
        headers=[()] * n,
        next_offset=first + n,
    )


def make_decoder(binding: Binding, payload_format: str = "json", gate: Gate | None = None) -> RecordDecoder:
    pairing = pairing_of("auto", two_sided=binding.x is not None, feature_names=binding.names)
    return RecordDecoder(DECODERS[payload_format](binding), gate or Gate(), pairing)
