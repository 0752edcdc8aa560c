"""A look at the group from outside, as the state tools take it: it finds members and positions, and changes neither."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from bus_harness import TIMEOUT_S, Harness, Process

Running = Callable[..., Process]

pytestmark = pytest.mark.timeout(120)


def test_positions_are_those_that_a_member_sees(harness: Harness, running: Running) -> None:
    tps = [harness.partition(0), harness.partition(1)]
    with closing(harness.bus("guest").group()) as group:
        assert group.committed(tps, TIMEOUT_S) == {tps[0]: None, tps[1]: None}
        process = running()
        harness.append(0, 1, 2)
        process.commit_at_last(process.read(2), "the-token")
        found = group.committed(tps, TIMEOUT_S)
        assert found == process.source.committed(tps, TIMEOUT_S)
        at = found[tps[0]]
        assert at is not None
        assert at.metadata == "the-token"
        assert found[tps[1]] is None


def test_members_are_named_while_they_are_there(broker: Harness, running: Running) -> None:
    with closing(broker.bus("guest").group()) as group:
        assert group.members() == []
        process = running()
        membership = process.source.membership()
        assert len(group.members()) == 1
        process.poll()
        assert process.source.membership() == membership
        process.source.close(leave=True, timeout_s=TIMEOUT_S)
        assert group.members() == []
