"""The only member of the group: what changes state commits as a worker does, while no worker can.

A broker refuses a commit unless its sender is a member of the present generation. That rule makes a change of state
safe, too: whoever owns a partition is the only one that can commit for it, and a worker that takes it over reads the
state behind the last commit of its former owner.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kstream_worker.errors import Fatal, Rejoin, Retry
from kstream_worker.ports import Membership, Source, Writer
from kstream_worker.records import Committed, Messages, Outcome, Progress, TopicPartition
from kstream_worker.state_tools.place import ANSWER_S, Place
from kstream_worker.worker.patience import Patience

_JOIN_S = 60.0
_COMMIT_S = 30.0
_POLL_S = 0.2
_ALIVE_S = 0.01
_IN_BETWEEN = (
    "a worker joined the group in between, and nothing more was written. Stop all workers, and run this command again"
)


class Seat:
    """Membership and writer of one command.

    Args:
        place: where the state is.
        source: started.
        writer: started.

    Attributes:
        birth: opens the token of each commit; see `worker.assignment.StartPositions`.
    """

    def __init__(self, place: Place, source: Source, writer: Writer) -> None:
        self.birth = ""
        self._place = place
        self._source = source
        self._writer = writer
        self._membership: Membership | None = None
        self._patience = Patience(place.clock, 4 * _COMMIT_S, 0.1, "Check the brokers, and run this command again.")

    @property
    def source(self) -> Source:
        """For questions about positions."""
        return self._source

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait until the group has settled with these partitions here.

        Raises:
            Fatal: some of them are not to be had: there are other members, or (files) an input is not there.
        """
        deadline = self._place.clock() + _JOIN_S
        owned: set[TopicPartition] = set()
        while self._place.clock() < deadline:
            for change in self._place.persist(lambda: self._source.poll(_POLL_S)).changes:
                owned.symmetric_difference_update(change.partitions)
            self._membership = self._source.membership()
            if self._membership is not None and owned.issuperset(partitions):
                return
        missing = sorted(set(partitions) - owned)
        raise Fatal(
            f"the group did not give {', '.join(map(str, missing))} within {_JOIN_S:.0f} s: it has other members (or, "
            "with files, an input that was there is not named any more). Stop all workers, and run this command again"
        )

    def keep(self) -> None:
        """Stay in the group; to be called every few seconds.

        Raises:
            Fatal: a worker came in between.
        """
        try:
            changes = self._source.poll(_ALIVE_S).changes
        except Retry:
            return
        except Rejoin as error:
            raise Fatal(_IN_BETWEEN) from error
        if changes:
            raise Fatal(_IN_BETWEEN)

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """Committed positions, open transactions waited for."""
        return self._place.persist(lambda: self._source.committed(partitions, ANSWER_S))

    def commit(self, make: Callable[[str], Sequence[Messages]], progress: Mapping[TopicPartition, Progress]) -> str:
        """Write messages and positions of the group in one transaction; the token of the commit.

        Args:
            make: the messages for a token.
            progress: input positions that the messages belong to.

        Raises:
            Fatal: a worker came in between, or commits do not succeed.
        """
        while True:
            token = f"{self.birth}{secrets.token_urlsafe(12)}"
            if self._attempt(make(token), progress, token):
                self._patience.succeeded()
                self.keep()
                return token
            self._place.sleep(self._patience.failed("the transaction was aborted"))

    def _attempt(self, messages: Sequence[Messages], progress: Mapping[TopicPartition, Progress], token: str) -> bool:
        """One transaction, in doubt until it is resolved; whether it was committed."""
        while True:
            self._membership = self._source.membership() or self._membership
            if self._membership is None:
                raise Fatal(_IN_BETWEEN)
            try:
                outcome = self._writer.commit(messages, progress, self._membership, token, _COMMIT_S)
            except Rejoin as error:
                raise Fatal(_IN_BETWEEN) from error
            except Retry as error:
                self._place.sleep(self._patience.failed(str(error)))
                self.keep()
                continue
            return outcome is Outcome.COMMITTED


@contextmanager
def taken(place: Place, numbers: Sequence[int]) -> Iterator[Seat]:
    """Be the only member of the group for a while.

    Args:
        place: where the state is.
        numbers: partitions that are to be changed.

    Raises:
        Fatal: there are other members; nothing was touched.
        ConfigError: a right is missing, or (files) another process has the output folder.
    """
    _refuse_others(place)
    writer, source = place.bus.writer(), place.bus.source()
    try:
        place.persist(lambda: writer.start(_COMMIT_S))
        place.persist(source.start)
        seat = Seat(place, source, writer)
        seat.take([place.input_of(number) for number in numbers])
        yield seat
    finally:
        source.close(leave=True, timeout_s=5.0)
        writer.close(5.0)


def _refuse_others(place: Place) -> None:
    group = place.persist(place.bus.group)
    try:
        members = place.persist(group.members)
    finally:
        group.close()
    if members:
        raise Fatal(
            f"the group has {len(members)} member{'s' * (len(members) > 1)} ({', '.join(members)}). Stop all workers; "
            "one that was killed, or a static one that stopped without `run --leave`, stays until its session ends "
            "(session_timeout_ms, 30 s)"
        )
