"""Runs a copying process on a files bus again and again, each killed after a moment, until one gets to the end."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from kstream_worker.bus.files import files_bus, source
from kstream_worker.records import Messages, Progress, TopicPartition

source.MAX_POLL_RECORDS = 60  # many commits, so that kills meet every stage of one


def copy(inputs: Path, outputs: Path) -> None:
    bus = files_bus([inputs], outputs)
    writer, reader = bus.writer(), bus.source()
    writer.start(5.0)
    reader.start()
    (assigned,) = reader.poll(0.1).changes
    for partition, committed in reader.committed(assigned.partitions, 5.0).items():
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
        progress = {batch.partition: Progress(batch.next_offset) for batch in poll.batches}
        writer.commit(messages, progress, membership, "token", 5.0)


def main() -> None:
    inputs, outputs, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            copy(inputs, outputs)
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
