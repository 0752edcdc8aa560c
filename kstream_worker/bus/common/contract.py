"""What every commit is held to before anything is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kstream_worker.errors import Rejoin
from kstream_worker.records import Messages, Progress, TopicPartition

MAX_TOKEN_BYTES = 100  # the broker's limit for metadata is 4096; the rest is for those who look at it


class Proof(Protocol):
    """A captured membership that names what it owned."""

    @property
    def generation(self) -> int:
        """Generation of the group."""
        ...

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """What the member owned in it."""
        ...

    @property
    def is_member(self) -> bool:
        """Whether it proves anything: a broker accepts commits of nobody, and they overwrite the owner's."""
        ...


def check_arguments(messages: Sequence[Messages], progress: Mapping[TopicPartition, Progress], token: str) -> None:
    """Refuse what could not be resolved later, or sent.

    Raises:
        ValueError: the arguments contradict one another.
    """
    if not token or len(token.encode()) > MAX_TOKEN_BYTES:
        raise ValueError(f"a token has 1 to {MAX_TOKEN_BYTES} bytes, not {len(token.encode())}")
    if not progress:
        raise ValueError(
            f"a commit of {len(messages)} columns of messages names no progress: nothing could be resolved"
        )
    for column in messages:
        lengths = {len(column.keys), len(column.values), len(column.timestamps), len(column.headers)}
        if len(lengths) != 1:
            raise ValueError(f"columns for {column.partition} differ in length: {sorted(lengths)}")


def check_owned(progress: Mapping[TopicPartition, Progress], proof: Proof) -> None:
    """Refuse positions of partitions that the proof does not cover.

    Raises:
        Rejoin: the membership is none, or does not own them.
    """
    if not proof.is_member:
        raise Rejoin("no member of the group: the broker would accept such a commit and overwrite the owner's")
    strange = sorted(str(partition) for partition in progress if partition not in proof.partitions)
    if strange:
        raise Rejoin(f"generation {proof.generation} does not own {', '.join(strange)}")
