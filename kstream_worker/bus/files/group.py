"""What is committed in an output folder, looked at from outside."""

from __future__ import annotations

from collections.abc import Sequence

from kstream_worker.bus.files.store import Store
from kstream_worker.records import Committed, TopicPartition


class FileGroup:
    """The `Group` of files: one process under a lock, which is found out by whoever wants the folder for itself."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def members(self) -> list[str]:
        """Nobody is named here: who takes the folder is refused while another has it."""
        return []

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions from the database; beside a worker of another process, too.

        Raises:
            Retry: another process holds the database.
            Fatal: it cannot be read.
        """
        del timeout_s  # nothing here waits
        found = self._store.look_up_positions()
        return {one: found[one.partition].committed if one.partition in found else None for one in partitions}

    def close(self) -> None:
        """Nothing to stop."""
