"""Counter-based draws: a draw is a function of (stream, role, counter), so replay and any cut into batches agree.

The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied once per word of the input.
"""

from __future__ import annotations

import hashlib

import numpy as np

from kstream_worker.numerics.jit import inline

_INV_2_53 = 1.0 / 9007199254740992.0
_BELOW_1 = 1.0 - _INV_2_53


def stream_of(seed: int, key: bytes) -> np.uint64:
    """The 64-bit number of the stream of draws that belongs to a key (BLAKE2b; never Python's `hash`)."""
    digest = hashlib.blake2b(key, digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@inline
def mix(value: np.uint64) -> np.uint64:
    """SplitMix64's finaliser: a bijection of 64-bit words."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inline
def bits(stream: np.uint64, role: int, counter: int) -> np.uint64:
    """64 random bits of draw `counter` in `role`."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    word = mix(stream + golden * np.uint64(role + 1))
    return mix(word + golden * np.uint64(counter + 1))


@inline
def uniform(stream: np.uint64, role: int, counter: int) -> float:
    """A draw in the open interval (0, 1)."""
    # The largest of the 2^53 draws would be rounded to 1, and `below` would then give n.
    return min((np.float64(bits(stream, role, counter) >> np.uint64(11)) + 0.5) * _INV_2_53, _BELOW_1)


@inline
def below(stream: np.uint64, role: int, counter: int, n: int) -> int:
    """A draw in {0, ..., n-1}, n < 2^20 (bias below n / 2^53)."""
    return int(uniform(stream, role, counter) * n)
