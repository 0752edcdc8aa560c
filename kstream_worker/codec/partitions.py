"""Which partition of an output topic a record goes to."""

from __future__ import annotations

from functools import lru_cache

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """MurmurHash2 (32 bits, A. Appleby) with the seed of Kafka's Java client, as an unsigned number."""
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, count: int) -> int:
    """The partition that Kafka's Java client gives this key on a topic of `count` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def output_partition(key: bytes | None, input_partition: int, input_count: int, output_count: int) -> int:
    """The input's partition where the counts are equal; else by key, and by input partition for a null key."""
    if input_count == output_count:
        return input_partition
    return input_partition % output_count if key is None else partition_of(key, output_count)
