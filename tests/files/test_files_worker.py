"""The worker on files, killed at any instant: outputs and state are those of a run that nothing disturbed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kstream_worker.bus.files import files_bus, read_output
from kstream_worker.records import End, TopicPartition
from kstream_worker.state.format import HEADER_KEY, decode_header, decode_snapshot

HERE = Path(__file__).parent
PARTITIONS, KEYS, RECORDS = 2, 3, 600
START_MS = 1_760_000_000_000


def write_inputs(folder: Path) -> None:
    """Samples in time order; the first key of each partition changes; some lines are no records."""
    folder.mkdir()
    rng = random.Random(5)
    for partition in range(PARTITIONS):
        lines = []
        for number in range(RECORDS):
            key = number % KEYS
            shift = 5.0 if key == 0 and number > RECORDS // 2 else 0.0
            sample = {"id": f"{partition}-{key}", "ts": START_MS + 1000 * number, "y": [rng.gauss(shift, 1.0)]}
            lines.append("broken" if number % 97 == 5 else json.dumps(sample))
        (folder / f"{partition}.jsonl").write_text("\n".join([*lines, ""]))


def run(inputs: Path, outputs: Path, seed: int) -> int:
    """How many processes were killed."""
    driver = [sys.executable, str(HERE / "kill_worker.py"), str(inputs), str(outputs), str(seed)]
    done = subprocess.run(driver, check=True, capture_output=True, timeout=200)
    kills, status = map(int, done.stdout.split())
    assert status == 0, done.stderr.decode()
    return kills


def published(outputs: Path) -> dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]]:
    """Outputs by topic and partition, in order."""
    found = defaultdict(list)
    for topic in ("estimates", "alarms"):
        for record in read_output(outputs / f"{topic}.jsonl"):
            found[topic, json.loads(record.value or b"")["partition"]].append((record.key, record.value))
    for record in read_output(outputs / "dead-letters.jsonl"):
        partition = int(dict(record.headers)["__connect.errors.partition"])
        found["dead-letters", partition].append((record.key, record.value))
    return dict(found)


def state(inputs: Path, outputs: Path) -> dict[tuple[int, bytes], Any]:
    """What goes on in the next run: the header's position, and of each key the model, byte for byte."""
    bus = files_bus([inputs], outputs, state_topic="drift-state")
    assert bus.reader is not None
    cluster, reader = bus.cluster(), bus.reader()
    found: dict[tuple[int, bytes], Any] = {}
    for number in range(PARTITIONS):
        partition = TopicPartition("drift-state", number)
        reader.assign({partition: 0})
        end = cluster.end([partition], End.HIGH)[partition]
        while reader.position(partition) < end:
            for batch in reader.poll(0.1):
                for key, value in zip(batch.keys, batch.values, strict=True):
                    assert key is not None
                    assert value is not None
                    found[number, key] = summary_of(key, value)
    return found


def summary_of(key: bytes, value: bytes) -> Any:
    if key == HEADER_KEY:
        header = decode_header(value)
        return header.offset, header.rejected
    snapshot = decode_snapshot(value)
    return snapshot.model, snapshot.seen_ms, snapshot.alarm


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worker") / "in"
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(inputs: Path) -> Path:
    outputs = inputs.parent / "undisturbed"
    assert run(inputs, outputs, 0) == 0
    return outputs


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_worker_killed_at_any_instant_leaves_what_an_undisturbed_one_does(
    inputs: Path, undisturbed: Path, tmp_path: Path, seed: int
) -> None:
    wanted = published(undisturbed)
    assert {topic for topic, _ in wanted} == {"estimates", "alarms", "dead-letters"}
    for attempt in range(10):  # a process may get to the end before it is killed
        out = tmp_path / str(attempt)
        if run(inputs, out, seed + 10 * attempt):
            break
    else:
        pytest.fail("no process was killed")
    assert published(out) == wanted
    models = state(inputs, undisturbed)
    assert len(models) == PARTITIONS * (1 + KEYS)
    assert state(inputs, out) == models
