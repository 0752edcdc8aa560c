"""Runs a copying process on a files bus again and again, each killed after a moment, until one gets to the end.

Each process first makes sure that the state is what the committed position calls for: the position itself, and what
the records before it have left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from kstream_worker.bus.files import files_bus, source
from kstream_worker.ports import Bus
from kstream_worker.records import Committed, End, Messages, Progress, TopicPartition

Rows = dict[bytes | None, bytes | None]

source.MAX_POLL_RECORDS = 60  # many commits, so that kills meet every stage of one


def rows_of(numbers: range) -> Rows:
    """State that records leave, in the order written: some keys are overwritten, some are deleted now and then."""
    return {b"\x01%d" % (n % 7): None if n // 7 % 3 == 2 else b"%d" % n * 200 for n in numbers}


def read_state(bus: Bus, number: int) -> Rows:
    partition = TopicPartition("state", number)
    assert bus.reader is not None
    cluster, reader = bus.cluster(), bus.reader()
    (end,) = cluster.end([partition], End.HIGH).values()
    reader.assign(cluster.earliest([partition]))
    found: Rows = {}
    while reader.position(partition) < end:
        for batch in reader.poll(0.01):
            found.update(zip(batch.keys, batch.values, strict=True))
    return found


def check_state(bus: Bus, inputs: Path, partition: TopicPartition, committed: Committed | None) -> None:
    expected: Rows = {}
    if committed is not None:
        path = sorted(inputs.iterdir())[partition.partition]
        count = path.read_bytes()[: committed.offset].count(b"\n")
        expected = {key: value for key, value in rows_of(range(count)).items() if value is not None}
        expected[b"\x00"] = b"%d" % committed.offset
    assert read_state(bus, partition.partition) == expected, f"{partition} at {committed}"


def copy(inputs: Path, outputs: Path) -> None:
    bus = files_bus([inputs], outputs)
    writer, reader = bus.writer(), bus.source()
    writer.start(5.0)
    reader.start()
    (assigned,) = reader.poll(0.1).changes
    for partition, committed in reader.committed(assigned.partitions, 5.0).items():
        check_state(bus, inputs, partition, committed)
        reader.seek(partition, committed.offset if committed else 0)
    reader.resume(assigned.partitions)
    membership = reader.membership()
    assert membership is not None
    while not (poll := reader.poll(0.1)).finished:
        messages = []
        for batch in poll.batches:
            topic = "odd" if batch.partition.partition % 2 else "even"
            messages.append(Messages(TopicPartition(topic, batch.partition.partition)))
            messages[-1].extend(batch.keys, batch.values, batch.timestamps, batch.headers)
            numbers = [json.loads(value or b"")["n"] for value in batch.values]
            rows = {b"\x00": b"%d" % batch.next_offset, **rows_of(range(numbers[0], numbers[-1] + 1))}
            messages.append(Messages(TopicPartition("state", batch.partition.partition)))
            messages[-1].extend(rows.keys(), rows.values(), [0] * len(rows), [()] * len(rows))
        progress = {batch.partition: Progress(batch.next_offset) for batch in poll.batches}
        writer.commit(messages, progress, membership, "token", 5.0)


def main() -> None:
    inputs, outputs, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                copy(inputs, outputs)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        time.sleep(rng.uniform(0.0, 0.01 + 0.003 * kills))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        kills += 1
    print(kills, os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
