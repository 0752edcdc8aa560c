"""What the loop needs to know of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstream_worker.worker.committer import CommitPolicy
from kstream_worker.worker.journal import SnapshotPolicy
from kstream_worker.worker.opener import OpenPolicy


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What the loop needs to know.

    Attributes:
        topic: the input topic.
        name: of this process, which a restart of it has, too; empty for none.
        start: `earliest`, `latest` or a time in milliseconds, for a group without offsets.
        opening: how partitions are opened.
        snapshots: how state is written.
        commit: times and sizes of commits.
        kinds: what each output topic holds, for counting: `estimate`, `alarm` or `dead_letter`.
        grace_s: time from a request to stop until the process gives up on its last commit.
        leave: tell the group at the end even if this is a static member.
        drain: read nothing new; bring all models up to date, snapshot them all, and end.
        fleet_keys: keys that share the false alarms of a fleet, over all processes; None where none are shared.
        progress_timeout_s: a partition that stands still for half of it is started again.
    """

    topic: str
    opening: OpenPolicy
    snapshots: SnapshotPolicy
    name: str = ""
    start: str | int = "earliest"
    commit: CommitPolicy = field(default_factory=CommitPolicy)
    kinds: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 25.0
    leave: bool = False
    drain: bool = False
    progress_timeout_s: float = 120.0
    fleet_keys: int | None = None
