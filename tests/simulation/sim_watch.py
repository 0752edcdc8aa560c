"""Reads along what is committed to the state topic, and holds it to what must be true of each commit."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sim_oracle import Arls, Rejected
from sim_parts import GROUP, OUTPUTS, STATE
from sim_scenario import Scenario
from sim_script import TOPIC

from kstream_worker.bus.fake import FakeBroker
from kstream_worker.bus.fake.log import FakeRecord
from kstream_worker.records import SILENT, TopicPartition
from kstream_worker.state.format import CorruptState, Header, decode_header, decode_snapshot, input_key


class Found(Exception):
    """Something that must not be."""


class StateWatch:
    """Follows the state topic of a broker.

    Args:
        broker: to be watched.
        scenario: that runs on it.

    Attributes:
        replay_from: by partition, of the last committed header.
        headers: committed, by partition.
    """

    def __init__(self, broker: FakeBroker, scenario: Scenario) -> None:
        self._broker = broker
        self._scenario = scenario
        self._partitions = range(scenario.script.partitions)
        self._cursors = dict.fromkeys(self._partitions, 0)
        self._pages: dict[int, dict[bytes, int]] = {p: {} for p in self._partitions}  # keys of the commit being read
        self._alarm_cursors = dict.fromkeys(self._partitions, 0)
        self._alarms: dict[int, dict[bytes, tuple[int, str]]] = {p: {} for p in self._partitions}
        self._arls: dict[int, dict[int, float]] = {p: {} for p in self._partitions}
        self._rejected: dict[int, set[int]] = {p: set() for p in self._partitions}
        self.headers: dict[int, Header] = {}
        self.replay_from: dict[int, int] = {}

    def look(self) -> None:
        """Take in what was committed since.

        Raises:
            Found: a commit is not as it must be.
        """
        for partition in self._partitions:
            log = self._broker.log(TopicPartition(STATE, partition))
            found = log.read(self._cursors[partition], -1)
            self._cursors[partition] = found.position
            self._take_alarms(partition)
            headers = [header for record in found.records if (header := self._take(partition, record)) is not None]
            if headers and found.position == log.end:
                self._agrees_with_group(partition, headers[-1])

    def arls(self) -> Arls:
        """Average run lengths by offset, all that ever held."""
        return tuple(tuple(sorted(self._arls[p].items())) for p in self._partitions)

    def rejected(self) -> Rejected:
        """Offsets of records that were given up."""
        return tuple(tuple(sorted(self._rejected[p])) for p in self._partitions)

    def all_is_snapshotted(self) -> None:
        """After a stop in good order nothing is to be replayed.

        Raises:
            Found: something is.
        """
        for partition, header in self.headers.items():
            if header.replay_from != header.offset:
                raise Found(f"partition {partition}: stopped at {header.offset}, and replays {header.replay_from}")

    def _take(self, partition: int, record: FakeRecord) -> Header | None:
        try:
            key = input_key(record.key)
        except CorruptState:
            return None  # of a foreign transaction
        if key is not None:
            self._pages[partition][key] = -1 if record.value is None else decode_snapshot(record.value).position
            return None
        assert record.value is not None
        header = decode_header(record.value)
        self._check(partition, header)
        self.headers[partition] = header
        self.replay_from[partition] = header.replay_from
        self._arls[partition].update(header.arls)
        self._rejected[partition].update(header.rejected)
        self._pages[partition] = {}
        return header

    def _take_alarms(self, partition: int) -> None:
        """The last transition of each key that was published since; silence is no state, so it needs no snapshot."""
        found = self._broker.log(TopicPartition(OUTPUTS[1], partition)).read(self._alarm_cursors[partition], -1)
        self._alarm_cursors[partition] = found.position
        for record in found.records:
            assert record.key is not None
            assert record.value is not None
            alarm = json.loads(record.value)
            if (alarm["explanation"] or {}).get("kind") == SILENT:
                continue
            self._alarms[partition][record.key] = (alarm["offset"], alarm["transition"])

    def _check(self, partition: int, header: Header) -> None:
        before, page = self.headers.get(partition), self._pages[partition]
        alarms = [(key, kind) for key, (offset, kind) in self._alarms[partition].items() if offset < header.offset]
        alone = [key for key, kind in alarms if kind == "raised" and key not in page]
        for key, _ in alarms:
            del self._alarms[partition][key]
        tests: Iterable[tuple[bool, str]] = (
            (header.replay_from <= header.offset, "replays from beyond the offset"),
            (all(at <= header.offset for at in page.values()), "holds a snapshot beyond the offset"),
            (not alone, f"raises alarms without snapshots, of {alone}"),
            (before is None or before.offset <= header.offset, "goes back"),
            (before is None or before.replay_from <= header.replay_from, "replays from before"),
        )
        for holds, what in tests:
            if not holds:
                raise Found(f"partition {partition}: a commit {what}: {header} with {page}")

    def _agrees_with_group(self, partition: int, header: Header) -> None:
        committed = self._broker.committed(GROUP, TOPIC, partition)
        if committed is None or (committed.offset, committed.metadata) != (header.offset, header.token):
            raise Found(f"partition {partition}: the group is at {committed}, the header says {header}")
