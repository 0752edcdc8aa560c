"""Reading a topic from outside: one partition at a time, in slices, up to where it ended when that began."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kstream_worker.errors import Fatal, Retry
from kstream_worker.ports import Reader
from kstream_worker.records import Batch, End, TopicPartition
from kstream_worker.state_tools.place import Place

Report = Callable[[TopicPartition, int, int], None]  # partition, offsets read, offsets to be read

_SLICE_S = 0.2


class PartitionReader:
    """Reads partitions of any topic, one after the other.

    Args:
        place: where they are.
        report: told how far the reading is, after each slice.
        between: called between slices: whoever holds a membership keeps it alive there.
    """

    def __init__(
        self, place: Place, report: Report = lambda *_: None, between: Callable[[], None] = lambda: None
    ) -> None:
        self._place = place
        self._report = report
        self._between = between
        self._reader: Reader | None = None

    def batches(self, partition: TopicPartition, start: int, end: int) -> Iterator[Batch]:
        """The committed records of a partition from `start` on and below `end`, in order.

        Raises:
            Fatal: the end cannot be reached, or the bus does not answer.
        """
        place = self._place
        reader = self._open()
        reader.assign({partition: start})
        position, moved_s = start, place.clock()
        while position < end:
            for batch in self._poll(reader):
                yield _below(batch, end)
            before, position = position, reader.position(partition)
            if position > before:
                moved_s = place.clock()
            elif place.clock() - moved_s > place.bus.stall_s:
                raise Fatal(
                    f"{partition} cannot be read beyond offset {position} of {end}: most likely a transaction is still "
                    "open there. Find it with `kafka-transactions.sh find-hanging` and abort it."
                )
            self._report(partition, min(position, end) - start, end - start)
            self._between()

    def close(self) -> None:
        """Stop."""
        if self._reader is not None:
            self._reader.close()

    def _open(self) -> Reader:
        if self._reader is None:
            self._reader = self._place.persist(self._place.bus.reader)
        return self._reader

    def _poll(self, reader: Reader) -> list[Batch]:
        try:
            return reader.poll(_SLICE_S)
        except Retry:  # as long as nothing moves at all, the stall ends it
            self._place.sleep(_SLICE_S)
            return []


class StateReader(PartitionReader):
    """Reads partitions of the state topic, by number."""

    def end(self, number: int) -> int:
        """Where a partition ends now: behind transactions that are still open."""
        state = self._place.state_of(number)
        return self._place.persist(lambda: self._place.cluster.end([state], End.HIGH)[state])

    def records(self, number: int, end: int) -> Iterator[Batch]:
        """The committed records of a partition below `end`, in order.

        Raises:
            Fatal: the end cannot be reached, or the bus does not answer.
        """
        place, state = self._place, self._place.state_of(number)
        start = place.persist(lambda: place.cluster.earliest([state])[state])
        return self.batches(state, start, end)


def _below(batch: Batch, end: int) -> Batch:
    """The records of a batch below an offset."""
    if not batch.offsets or batch.offsets[-1] < end:
        return batch
    count = sum(offset < end for offset in batch.offsets)
    return Batch(
        batch.partition,
        batch.offsets[:count],
        batch.timestamps[:count],
        batch.keys[:count],
        batch.values[:count],
        batch.headers[:count],
        end,
        batch.leader_epoch,
    )
