"""A look at a group of the fake broker from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kstream_worker.errors import Retry
from kstream_worker.records import Committed, TopicPartition

if TYPE_CHECKING:
    from kstream_worker.bus.fake.broker import FakeBroker


class FakeGroupView:
    """The `Group` of tools."""

    def __init__(self, broker: FakeBroker, group: str) -> None:
        self._broker = broker
        self._group = group

    def members(self) -> list[str]:
        """Identities of the members."""
        return self._broker.group(self._group).members()

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions.

        Raises:
            Retry: an open transaction still holds one of them after `timeout_s`.
        """
        if any(self._broker.has_pending_position(self._group, one) for one in partitions):
            self._broker.clock.sleep(timeout_s)
        pending = [one for one in partitions if self._broker.has_pending_position(self._group, one)]
        if pending:
            raise Retry(f"positions of {', '.join(map(str, pending))} are held by an open transaction")
        return {one: self._broker.committed(self._group, *one) for one in partitions}

    def close(self) -> None:
        """Nothing to stop."""
