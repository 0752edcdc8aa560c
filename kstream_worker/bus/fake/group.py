"""A consumer group: static members, generations, and a cooperative, sticky assignment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kstream_worker.bus.fake.clock import FakeClock
from kstream_worker.errors import Fatal, Rejoin
from kstream_worker.records import Change, ChangeKind, Committed, TopicPartition, Unowned


class FakeMembership(NamedTuple):
    """A proof of membership: valid until the member learns of a later generation, or is put out."""

    group: str
    identity: str
    incarnation: int
    generation: int
    partitions: frozenset[TopicPartition]


@dataclass
class Member:
    """A member; a process that returns under the same identity is a new incarnation of it.

    Attributes:
        seen_s: when it was heard of last.
        settled: the changes of the group, and the partitions of the topic, at its last poll.
    """

    identity: str
    incarnation: int
    generation: int
    seen_s: float
    owned: set[TopicPartition] = field(default_factory=set)
    settled: tuple[int, Sequence[TopicPartition]] = (-1, ())


class Group:
    """Members share the partitions of one topic; a partition moves only after its owner has let it go.

    Args:
        name: of the group.
        clock: seconds.
        session_timeout_s: a member that is not heard of for longer is put out; inf for never.
    """

    def __init__(self, name: str, clock: FakeClock, session_timeout_s: float = math.inf) -> None:
        self.name = name
        self.generation = 0
        self.positions: dict[TopicPartition, Committed] = {}
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._members: dict[str, Member] = {}
        self._incarnations: dict[str, int] = {}
        self._targets: dict[TopicPartition, str] = {}
        self._lost: set[TopicPartition] = set()
        self._changes = 0  # of members, generation or owners

    def copy(self, clock: FakeClock) -> Group:
        """The same group apart from this one."""
        other = Group(self.name, clock, self._session_timeout_s)
        other.generation, other._changes = self.generation, self._changes
        other.positions = self.positions.copy()
        other._members = {name: replace(one, owned=one.owned.copy()) for name, one in self._members.items()}
        other._incarnations = self._incarnations.copy()
        other._targets = self._targets.copy()
        other._lost = self._lost.copy()
        return other

    def members(self) -> list[str]:
        """Identities of the members."""
        self._expire()
        return sorted(self._members)

    def join(self, identity: str) -> int:
        """Enter, or take over from a former process of the same identity; the incarnation."""
        incarnation = self._incarnations[identity] = self._incarnations.get(identity, 0) + 1
        self.enter(identity, incarnation)
        return incarnation

    def enter(self, identity: str, incarnation: int) -> None:
        """Become a member (again) with nothing owned."""
        self._begin_generation()
        self._members[identity] = Member(identity, incarnation, self.generation, self._clock())

    def leave(self, identity: str) -> None:
        """Put a member out; what it owned, and what was lost, is free at once. No effect when it is no member."""
        if self._members.pop(identity, None) is not None:
            self._lost.clear()
            self._begin_generation()

    def lose(self, partition: TopicPartition) -> None:
        """Give a partition to nobody until a member leaves.

        So it is where a static member ends after the first of the two rounds in which a partition moves, and is back
        before its session ends.
        """
        self._lost.add(partition)
        self._begin_generation()

    def unowned(self, identity: str, partitions: Iterable[TopicPartition]) -> Unowned:
        """What is lost, and how many members come before this one."""
        lost = tuple(partition for partition in partitions if partition in self._lost)
        return Unowned(lost, sum(name < identity for name in self._members))

    def release(self, identity: str) -> None:
        """Begin a new generation, in which a member that stays has let go of all its partitions."""
        self._begin_generation()
        self._members[identity].owned.clear()

    def heard_of(self, identity: str) -> None:
        """A member is alive now."""
        if identity in self._members:
            self._members[identity].seen_s = self._clock()

    def is_member(self, identity: str, incarnation: int) -> bool:
        """Whether this very process is in the group.

        Raises:
            Fatal: another process has taken over the identity.
        """
        if self._incarnations[identity] != incarnation:
            raise Fatal(
                f"another process joined group '{self.name}' as '{identity}'; give each process its own identity"
            )
        self._expire()
        return identity in self._members

    def settle(self, identity: str, partitions: Sequence[TopicPartition]) -> list[Change]:
        """Bring a polling member up to date with its share of `partitions`; the changes for it, in order.

        Args:
            identity: the member.
            partitions: of the topic; the same object while the topic does not change.
        """
        member = self._members[identity]
        if member.settled[0] == self._changes and member.settled[1] is partitions:
            return []
        self._plan(partitions)
        member.generation = self.generation
        due = {partition for partition, owner in self._targets.items() if owner == identity}
        taken = set().union(*(other.owned for other in self._members.values() if other is not member))
        changes = []
        if gone := sorted(member.owned - due):
            changes.append(Change(ChangeKind.REVOKED, tuple(gone)))
        if new := sorted(due - member.owned - taken):
            changes.append(Change(ChangeKind.ASSIGNED, tuple(new)))
        member.owned = (member.owned & due) | set(new)
        self._changes += bool(changes)
        member.settled = (self._changes, partitions)
        return changes

    def membership(self, identity: str) -> FakeMembership:
        """The proof for commits of a member that has just settled."""
        member = self._members[identity]
        return FakeMembership(self.name, identity, member.incarnation, member.generation, frozenset(member.owned))

    def is_current(self, membership: FakeMembership | None) -> bool:
        """Whether a proof, of a member that has just settled without a change, is still the same."""
        return membership is not None and membership.generation == self._members[membership.identity].generation

    def check(self, membership: FakeMembership, partitions: Iterable[TopicPartition]) -> None:
        """Refuse commits of those who are no longer what they claim.

        Raises:
            Rejoin: put out of the group, of an earlier generation, or a partition is not the member's.
            Fatal: another process has taken over the identity.
        """
        if not self.is_member(membership.identity, membership.incarnation):
            raise Rejoin(f"'{membership.identity}' is no member of group '{self.name}' any more")
        if self._members[membership.identity].generation != membership.generation:
            raise Rejoin(f"generation {membership.generation} of group '{self.name}' has passed")
        if strange := sorted(set(partitions) - membership.partitions):
            raise Rejoin(f"'{membership.identity}' does not own {', '.join(map(str, strange))}")

    def _begin_generation(self) -> None:
        self.generation += 1
        self._changes += 1

    def _expire(self) -> None:
        if self._session_timeout_s == math.inf:
            return
        oldest_s = self._clock() - self._session_timeout_s
        for identity in [name for name, member in self._members.items() if member.seen_s < oldest_s]:
            self.leave(identity)

    def _plan(self, partitions: Sequence[TopicPartition]) -> None:
        """Share partitions evenly; whoever has one keeps it while that is fair."""
        members = sorted(self._members)
        share, rest = divmod(len(partitions), len(members))
        room = {name: share + (index < rest) for index, name in enumerate(members)}
        targets: dict[TopicPartition, str] = {}
        partitions = [partition for partition in partitions if partition not in self._lost]
        for partition in partitions:
            holder = self._targets.get(partition)
            if holder is not None and room.get(holder, 0) > 0:
                targets[partition] = holder
                room[holder] -= 1
        for partition in partitions:
            if partition not in targets:
                targets[partition] = next(name for name in members if room[name] > 0)
                room[targets[partition]] -= 1
        self._targets = targets
