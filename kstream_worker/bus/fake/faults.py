"""The plan of what goes wrong, and when. Every fault happens once, at a counted call."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from kstream_worker.records import ChangeKind

Point = Literal[
    "start",  # a source joins
    "poll",  # before a poll of a source does anything
    "committed",  # before committed positions are read
    "reader",  # a reader connects
    "reader.poll",
    "cluster",  # before anything is asked about the bus
    "writer.start",
    "commit",  # before a commit does anything
    "commit.sent",  # records and positions are written, the transaction is open
    "commit.done",  # the transaction is committed, the answer is on its way
]


class SimulatedCrash(BaseException):
    """The process dies here. Not an `Exception`: nothing in the worker may handle it."""


class CommitFault(Enum):
    """What happens to one call of `Writer.commit`."""

    ABORT = "abort"  # nothing is written, the answer is ABORTED
    UNKNOWN_COMMITTED = "unknown_committed"  # everything is written, the answer is lost: Retry
    UNKNOWN_ABORTED = "unknown_aborted"  # nothing is written, the answer is lost: Retry
    UNAVAILABLE = "unavailable"  # the broker cannot be reached, nothing happens: Retry
    REJOIN = "rejoin"  # the group refuses the positions: nothing is written, Rejoin


@dataclass(frozen=True, slots=True)
class _Planned:
    point: Point
    call: int
    identity: str | None
    error: BaseException


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A member loses what it holds at one of its polls and gets it back (or what it is due then) later.

    Attributes:
        poll: number of the poll of that member, from 1, at which the change is reported.
        kind: `REVOKED` or `LOST`.
        identity: the member, None for any.
        unsettled_polls: polls after this one that find nothing because the group is still joining.
    """

    poll: int
    kind: ChangeKind = ChangeKind.REVOKED
    identity: str | None = None
    unsettled_polls: int = 0


class Faults:
    """Faults to come. Calls of a point are counted per identity, from 1, over all its incarnations."""

    def __init__(self) -> None:
        self._errors: list[_Planned] = []
        self._rebalances: list[Rebalance] = []
        self._commits: deque[CommitFault | None] = deque()
        self._calls: dict[tuple[Point, str], int] = {}
        self.denied: set[tuple[Literal["read", "write"], str]] = set()

    def on_commit(self, *faults: CommitFault | None) -> None:
        """Plan the next calls of `commit`, one fault (or None) each, whoever makes them."""
        self._commits.extend(faults)

    def rebalance(
        self,
        poll: int,
        kind: ChangeKind = ChangeKind.REVOKED,
        *,
        identity: str | None = None,
        unsettled_polls: int = 0,
    ) -> None:
        """Plan a rebalance at poll number `poll` of a member (None: of whoever polls that often first)."""
        if kind is ChangeKind.ASSIGNED:
            raise ValueError("a rebalance takes partitions away: REVOKED or LOST; ASSIGNED follows by itself")
        self._rebalances.append(Rebalance(poll, kind, identity, unsettled_polls))

    def raise_at(self, point: Point, call: int, error: BaseException, *, identity: str | None = None) -> None:
        """Raise `error` at call number `call` of `point`."""
        self._errors.append(_Planned(point, call, identity, error))

    def crash_at(self, point: Point, call: int, *, identity: str | None = None) -> None:
        """Kill the process at call number `call` of `point`: `SimulatedCrash`."""
        self.raise_at(point, call, SimulatedCrash(f"{point} {call}"), identity=identity)

    def deny(self, right: Literal["read", "write"], topic: str) -> None:
        """Take a right away. As on a real broker, reading without it finds nothing and raises nothing."""
        self.denied.add((right, topic))

    def calls(self, point: Point, identity: str) -> int:
        """How often `identity` has reached `point`."""
        return self._calls.get((point, identity), 0)

    def reach(self, point: Point, identity: str) -> int:
        """Count a call; its number. Raises what is planned for it."""
        number = self._calls[point, identity] = self.calls(point, identity) + 1
        for planned in self._errors:
            if (planned.point, planned.call) == (point, number) and planned.identity in (None, identity):
                self._errors.remove(planned)
                raise planned.error
        return number

    def next_commit(self) -> CommitFault | None:
        """The fault of this call of `commit`."""
        return self._commits.popleft() if self._commits else None

    def next_rebalance(self, identity: str, poll: int) -> Rebalance | None:
        """The rebalance of this poll."""
        for planned in self._rebalances:
            if planned.poll == poll and planned.identity in (None, identity):
                self._rebalances.remove(planned)
                return planned
        return None
