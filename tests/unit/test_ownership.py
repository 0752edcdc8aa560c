"""Who has which partitions of a group."""

from __future__ import annotations

import pytest

from kstream_worker.bus.common.ownership import find_unowned, read_assignment
from kstream_worker.errors import Retry
from kstream_worker.records import TopicPartition, Unowned

# What a broker stores of a member that has partitions 0 and 1 of the topic `t` and 7 of `äb`.
STORED = (
    b"\x00\x01\x00\x00\x00\x02"
    b"\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"
    b"\x00\x03\xc3\xa4b\x00\x00\x00\x01\x00\x00\x00\x07"
    b"\xff\xff\xff\xff"
)


def test_an_assignment_is_read_as_the_broker_stores_it() -> None:
    assert read_assignment(STORED) == [("t", 0), ("t", 1), ("äb", 7)]
    assert read_assignment(b"") == []
    for cut in (3, 9, 20):
        with pytest.raises(Retry, match="not readable"):
            read_assignment(STORED[:cut])


def test_what_nobody_has_and_whose_turn_it_is() -> None:
    owners = {"a-1f": [("t", 0), ("other", 1)], "b-2e": [], "c-3d": [("t", 3)]}
    missing = (TopicPartition("t", 1), TopicPartition("t", 2))
    assert find_unowned("t", 4, owners, "a") == Unowned(missing, 0)
    assert find_unowned("t", 4, owners, "c") == Unowned(missing, 2)
    assert find_unowned("t", 1, owners, "b") == Unowned((), 1)
