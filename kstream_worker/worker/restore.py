"""Reading the state of partitions back, a slice at a time, so that the group is polled in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from kstream_worker.errors import Fatal
from kstream_worker.ports import Reader
from kstream_worker.records import Batch, TopicPartition
from kstream_worker.state.format import CorruptState, Header, decode_header, decode_snapshot, input_key
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

_LOG_EVERY_S = 5.0

# Of damaged records that are kept as dead letters; of more, only the keys.
_MOST_KEPT_BYTES = 16 * 2**20

Progressed = Callable[[TopicPartition, int, int], None]


class Damaged(NamedTuple):
    """A state record that cannot be read.

    Attributes:
        value: as found; empty beyond the first 16 MiB of them.
        offset: in the state topic.
        time_ms: the record's time.
        why: in words.
    """

    value: bytes
    offset: int
    time_ms: int
    why: str


@dataclass(slots=True)
class Restored:
    """What the state topic holds of one partition.

    Attributes:
        task: the keys are loaded into.
        header: the last one; None for none.
        generations: of the keys that are loaded.
        damaged: state records that cannot be read, by key of the input.
        kept_bytes: of those that became dead letters.
        position: in the state topic.
        end: where the state topic ended when the restore began.
        began_s: monotonic seconds.
    """

    task: Task
    position: int
    end: int
    began_s: float
    header: Header | None = None
    generations: dict[bytes, int] = field(default_factory=dict)
    damaged: dict[bytes, Damaged] = field(default_factory=dict)
    kept_bytes: int = 0

    @property
    def done(self) -> bool:
        """Whether everything there was has been read."""
        return self.position >= self.end

    @property
    def generation(self) -> int:
        """The highest of any header or snapshot; -1 for none."""
        headers = [] if self.header is None else [self.header.generation]
        return max([*headers, *self.generations.values()], default=-1)

    def take(self, batch: Batch) -> None:
        """Records of the state topic, in order."""
        for row, (record_key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            try:
                key = input_key(record_key)
            except CorruptState as error:
                log.warning("a record of the state topic is none of ours, and ignored", why=str(error))
                continue
            if key is None:
                self._take_header(value)
            elif value is None:
                self._drop(key)
            else:
                self._take_snapshot(key, value, batch.offsets[row], batch.timestamps[row])

    def belong(self) -> list[bytes]:
        """Keys that the header knows nothing of, and so must go; they are unloaded."""
        wanted = -1 if self.header is None else self.header.generation
        others = [key for key, generation in self.generations.items() if generation != wanted]
        for key in others:
            self.task.unload(key)
        return others

    def _take_header(self, value: bytes | None) -> None:
        try:
            self.header = None if value is None else decode_header(value)
        except CorruptState as error:
            self.header = None
            log.warning("the header of a partition is damaged", partition=str(self.task.partition), why=str(error))

    def _take_snapshot(self, key: bytes, value: bytes, offset: int, time_ms: int) -> None:
        try:
            snapshot = decode_snapshot(value)
            self.task.load(key, snapshot)
        except ValueError as error:
            self._drop(key)
            kept = value if self.kept_bytes + len(value) <= _MOST_KEPT_BYTES else b""
            self.kept_bytes += len(kept)
            self.damaged[key] = Damaged(kept, offset, time_ms, str(error))
        else:
            self.generations[key] = snapshot.generation
            self.damaged.pop(key, None)

    def _drop(self, key: bytes) -> None:
        self.task.unload(key)
        self.generations.pop(key, None)
        self.damaged.pop(key, None)


class Restore:
    """The restore of partitions that were assigned together, through one reader.

    Args:
        reader: of the state topic; closed by `close`.
        topic: of the state.
        tasks: to be filled.
        starts: first offsets of the state partitions.
        ends: their high watermarks, taken after the committed positions of the group: whatever was committed lies
            below.
        clock: monotonic seconds.
        tell: told (partition, done, total), in offsets of the state topic.
        stall_s: how long the reading may stand still.
    """

    def __init__(
        self,
        reader: Reader,
        topic: str,
        tasks: Sequence[Task],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        clock: Callable[[], float],
        tell: Progressed,
        stall_s: float,
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._clock = clock
        self._tell = tell
        self._stall_s = stall_s
        self._began_s = self._moved_s = clock()
        self._log_at_s = self._began_s + _LOG_EVERY_S
        self.parts: dict[TopicPartition, Restored] = {}
        for task in tasks:
            state = self._state_of(task.partition)
            self.parts[task.partition] = Restored(task, starts[state], ends[state], self._moved_s)
        self._starts = {tp: part.position for tp, part in self.parts.items()}
        self._assign()

    def step(self, slice_s: float) -> None:
        """Read for about that long.

        Raises:
            Retry: the bus does not answer.
            Fatal: the end of the state topic cannot be reached.
        """
        deadline = self._clock() + slice_s
        while any(not part.done for part in self.parts.values()):
            left_s = deadline - self._clock()
            if left_s <= 0:
                break
            self._read(left_s)
        for tp, part in self.parts.items():
            total = part.end - self._starts[tp]
            done = total if part.done else part.position - self._starts[tp]
            self._tell(tp, done, total)
        self._log()

    def finished(self) -> list[Restored]:
        """Those that are read to the end; they leave this restore."""
        done = [part for part in self.parts.values() if part.done]
        for part in done:
            del self.parts[part.task.partition]
        return done

    def drop(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        if self.parts.pop(partition, None) is not None:
            self._assign()

    def close(self) -> None:
        """Stop."""
        self._reader.close()

    def _read(self, timeout_s: float) -> None:
        for batch in self._reader.poll(timeout_s):
            part = self.parts.get(TopicPartition(self._input_topic(), batch.partition.partition))
            if part is not None:
                part.take(batch)
        moved = False
        for tp, part in [(tp, part) for tp, part in self.parts.items() if not part.done]:
            position = self._reader.position(self._state_of(tp))
            moved |= position > part.position
            part.position = position
        now = self._clock()
        if moved:
            self._moved_s = now
        elif now - self._moved_s > self._stall_s:
            self._complain()

    def _log(self) -> None:
        now = self._clock()
        if now >= self._log_at_s and self.parts:
            self._log_at_s = now + _LOG_EVERY_S
            left = {str(tp): part.end - part.position for tp, part in self.parts.items() if not part.done}
            log.info("restoring", offsets_left=left, seconds=round(now - self._began_s, 1))

    def _complain(self) -> None:
        stuck = [
            f"{self._state_of(tp)} at {part.position} of {part.end}" for tp, part in self.parts.items() if not part.done
        ]
        raise Fatal(
            f"the state cannot be read to its end: {', '.join(stuck)} for {self._stall_s:.0f} s. Most likely a "
            "transaction of another producer is still open there: find it with `kafka-transactions.sh find-hanging` "
            "and abort it, then start again."
        )

    def _assign(self) -> None:
        self._reader.assign({self._state_of(tp): part.position for tp, part in self.parts.items() if not part.done})

    def _state_of(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self._topic, partition.partition)

    def _input_topic(self) -> str:
        return next(iter(self.parts)).topic
