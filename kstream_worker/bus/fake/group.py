"""A consumer group: static members, generations, and a cooperative, sticky assignment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kstream_worker.errors import Fatal, Rejoin
from kstream_worker.records import Change, ChangeKind, Committed, TopicPartition


class FakeMembership(NamedTuple):
    """A proof of membership: valid until the member learns of a later generation, or is put out."""

    group: str
    identity: str
    incarnation: int
    generation: int
    partitions: frozenset[TopicPartition]


@dataclass
class Member:
    """A member; a process that returns under the same identity is a new incarnation of it."""

    identity: str
    incarnation: int
    generation: int
    owned: set[TopicPartition] = field(default_factory=set)


class Group:
    """Members share the partitions of one topic; a partition moves only after its owner has let it go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.positions: dict[TopicPartition, Committed] = {}
        self._members: dict[str, Member] = {}
        self._incarnations: dict[str, int] = {}
        self._targets: dict[TopicPartition, str] = {}

    def join(self, identity: str) -> int:
        """Enter, or take over from a former process of the same identity; the incarnation."""
        incarnation = self._incarnations[identity] = self._incarnations.get(identity, 0) + 1
        self.enter(identity, incarnation)
        return incarnation

    def enter(self, identity: str, incarnation: int) -> None:
        """Become a member (again) with nothing owned."""
        self.generation += 1
        self._members[identity] = Member(identity, incarnation, self.generation)

    def leave(self, identity: str) -> None:
        """Put a member out; what it owned is free at once. No effect when it is no member."""
        if self._members.pop(identity, None) is not None:
            self.generation += 1

    def release(self, identity: str) -> None:
        """Begin a new generation, in which a member that stays has let go of all its partitions."""
        self.generation += 1
        self._members[identity].owned.clear()

    def is_member(self, identity: str, incarnation: int) -> bool:
        """Whether this very process is in the group.

        Raises:
            Fatal: another process has taken over the identity.
        """
        if self._incarnations[identity] != incarnation:
            raise Fatal(
                f"another process joined group '{self.name}' as '{identity}'; give each process its own identity"
            )
        return identity in self._members

    def settle(self, identity: str, partitions: list[TopicPartition]) -> list[Change]:
        """Bring a polling member up to date with its share of `partitions`; the changes for it, in order."""
        member = self._members[identity]
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
        return changes

    def membership(self, identity: str) -> FakeMembership:
        """The proof for commits of a member that has just settled."""
        member = self._members[identity]
        return FakeMembership(self.name, identity, member.incarnation, member.generation, frozenset(member.owned))

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

    def _plan(self, partitions: list[TopicPartition]) -> None:
        """Share partitions evenly; whoever has one keeps it while that is fair."""
        members = sorted(self._members)
        share, rest = divmod(len(partitions), len(members))
        room = {name: share + (index < rest) for index, name in enumerate(members)}
        targets: dict[TopicPartition, str] = {}
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
