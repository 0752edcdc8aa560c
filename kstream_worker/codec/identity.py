"""The `id` of an output record: equal for equal outputs, so that a consumer can drop duplicates."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from kstream_worker.records import IntColumn, TopicPartition

ORDINALS = 4  # outputs of one kind that one input record can have
RANKS = (
    2**16
)  # alarms of other keys raised or cleared at one record, in a block; leaves 2^48 offsets: 89 years at 100,000 a second


class Identity:
    """Ids of the outputs of one kind that one input partition gives rise to: 128 bits as 32 hexadecimal digits.

    BLAKE2b of (application, model epoch, kind, topic, partition) is drawn once. Its first half opens every id; its
    second half and the record's (offset, ordinal) go through a bijection of 64-bit words (the finaliser of SplitMix64),
    so two outputs of one kind and partition never share an id.

    Args:
        app_id: the application.
        model_epoch: number of the generation of models.
        kind: `estimate`, `alarm`, or a block of alarms of other keys that begin or end at a record.
        partition: the input partition.
        ordinals: outputs of this kind that one input record can have.
    """

    def __init__(
        self, app_id: str, model_epoch: int, kind: str, partition: TopicPartition, ordinals: int = ORDINALS
    ) -> None:
        self._ordinals = ordinals
        parts = (app_id, str(model_epoch), kind, partition.topic, str(partition.partition))
        digest = _digest(*map(str.encode, parts))
        self._prefix = digest[:8].hex()
        self._base = np.uint64(int.from_bytes(digest[8:], "big"))

    def ids(self, offsets: IntColumn, ordinal: int = 0) -> list[str]:
        """The ids of outputs of the records at these offsets (int64[n], below 2^63 / `ordinals`).

        Args:
            offsets: input offsets.
            ordinal: number of the output among those of its kind and record.

        Raises:
            ValueError: more outputs of one record than this kind can have.
        """
        if not 0 <= ordinal < self._ordinals:
            raise ValueError(f"ordinal {ordinal} of an output is outside 0 to {self._ordinals - 1}")
        words = offsets.astype(np.uint64) * np.uint64(self._ordinals) + np.uint64(ordinal)
        text = _mix(words ^ self._base).astype(">u8").tobytes().hex()
        prefix = self._prefix
        return [prefix + text[at : at + 16] for at in range(0, len(text), 16)]


def incident_id(app_id: str, kind: str, topic: str, key: bytes, seq: int, time_ms: int) -> str:
    """What all alarms of one incident of a key have in common: 128 bits as 32 hexadecimal digits.

    Args:
        app_id: the application.
        kind: `change` or `silence`; a key may be in alarm for both.
        topic: of the input.
        key: the entity.
        seq: number of the sample of the key with which the incident began.
        time_ms: event time then.
    """
    texts = (app_id, f"incident-{kind}", topic, str(seq), str(time_ms))
    return _digest(*map(str.encode, texts), key).hex()


def _digest(*parts: bytes) -> bytes:
    # lengths in front keep ("a", "bc") apart from ("ab", "c")
    text = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return hashlib.blake2b(text, digest_size=16, person=b"kstream-id").digest()


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return mixed
