"""The way out: append to the outputs, sync, then one database transaction that makes it count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kstream_worker.bus.files.envelope import encode_line
from kstream_worker.bus.files.outputs import Outputs
from kstream_worker.bus.files.state import check
from kstream_worker.bus.files.store import Position, Store
from kstream_worker.errors import Fatal, Retry
from kstream_worker.ports import Membership
from kstream_worker.records import Committed, Messages, Outcome, Progress, TopicPartition

MAX_TOKEN_BYTES = 100


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A call that ended in `Retry`."""

    token: str
    positions: Mapping[int, Position]


class FileWriter:
    """The `Writer` of files. A sync of a disk that hangs cannot be interrupted: there the timeout is not kept."""

    def __init__(self, store: Store, outputs: Outputs, state_topic: str) -> None:
        self._store = store
        self._outputs = outputs
        self._state_topic = state_topic
        self._doubt: _Doubt | None = None
        self._started = False

    def start(self, timeout_s: float) -> None:
        """Lock the output folder and cut off what was never committed.

        Raises:
            ConfigError: another process holds the folder, or it cannot be written.
            Fatal: an output is shorter than committed, or the database is damaged.
        """
        del timeout_s  # nothing here waits for another process
        if not self._started:
            self._store.open("writer")
            try:
                self._outputs.start()
            except BaseException:
                self.close(0.0)
                raise
            self._started = True

    def commit(
        self,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: Membership,
        token: str,
        timeout_s: float,
    ) -> Outcome:
        """Write everything or nothing.

        What an interrupted call has appended lies behind the committed length and is written over by the next one.

        Raises:
            Retry: another process holds the database for longer than `timeout_s`; the next call with this token
                says whether the commit came about, and writes nothing.
            Fatal: a disk is full or broken; nothing was written.
            ValueError: the token has not 1 to 100 bytes, no progress, columns that differ in length, or a record for
                the state topic without a key.
        """
        del membership  # the lock is the membership
        if not 1 <= len(token.encode()) <= MAX_TOKEN_BYTES:
            raise ValueError(f"a token has 1 to {MAX_TOKEN_BYTES} bytes, not {len(token.encode())}")
        if not progress:
            raise ValueError("a commit without progress could not be resolved in doubt")
        state = [column for column in messages if column.partition.topic == self._state_topic]
        check(state)
        lines = _lines([column for column in messages if column.partition.topic != self._state_topic])
        if (known := self._resolve(token)) is not None:
            return known
        positions = {one.partition: self._position(one, reached, token) for one, reached in progress.items()}
        try:
            lengths = self._outputs.append(lines, timeout_s)
            self._store.commit(positions, lengths, state, timeout_s)
        except Retry:
            self._doubt = _Doubt(token, positions)
            raise
        self._outputs.accept(lengths)
        return Outcome.COMMITTED

    def close(self, timeout_s: float) -> None:
        """Close the outputs and unlock the folder."""
        del timeout_s  # nothing here waits
        self._started = False
        self._outputs.close()
        self._store.close("writer")

    def _resolve(self, token: str) -> Outcome | None:
        """What became of the call before, if it ended in doubt and had this token."""
        doubt = self._doubt
        if doubt is None:
            return None
        found = self._store.positions()
        self._outputs.accept(self._store.lengths())
        self._outputs.cut_back()
        self._doubt = None
        if doubt.token != token:
            return None
        done = all(found.get(partition) == at for partition, at in doubt.positions.items())
        return Outcome.COMMITTED if done else Outcome.ABORTED

    def _position(self, partition: TopicPartition, reached: Progress, token: str) -> Position:
        source = self._store.inputs.get(partition.partition)
        if source is None:
            raise Fatal(f"{partition} is no input; it has partitions {sorted(self._store.inputs)}")
        source.open()
        return Position(Committed(reached.offset, token, reached.leader_epoch), source.fingerprint(reached.offset))


def _lines(messages: Sequence[Messages]) -> dict[str, list[bytes]]:
    lines: dict[str, list[bytes]] = {}
    for column in messages:
        rows = zip(column.keys, column.values, column.timestamps, column.headers, strict=True)
        lines.setdefault(column.partition.topic, []).extend(encode_line(*row) for row in rows)
    return {topic: found for topic, found in lines.items() if found}
