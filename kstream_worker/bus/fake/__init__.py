"""An in-memory broker for tests: partitions, transactions, groups, and faults on demand.

    broker = FakeBroker()
    broker.create_topic("input", partitions=2)
    broker.create_topic("output", partitions=2)
    broker.append("input", 0, b"key", b"value")
    bus = broker.bus(topic="input", group="app", identity="app-0")
    broker.faults.on_commit(CommitFault.UNKNOWN_COMMITTED)
    ...                                   # run the worker on `bus`, with `broker.clock` as its clock
    broker.records("output")              # what a read_committed consumer sees

Deterministic: nothing here reads a wall clock, starts a thread or draws a random number. Waiting moves
`broker.clock` instead.
"""

from kstream_worker.bus.fake.broker import FakeBroker, ForeignTransaction
from kstream_worker.bus.fake.clock import FakeClock
from kstream_worker.bus.fake.faults import CommitFault, Faults, SimulatedCrash
from kstream_worker.bus.fake.log import FakeRecord

__all__ = [
    "CommitFault",
    "FakeBroker",
    "FakeClock",
    "FakeRecord",
    "Faults",
    "ForeignTransaction",
    "SimulatedCrash",
]
