"""Golden state: what a worker of this release left in the state topic, the input that follows, and what it gave.

`python tests/state/state_golden.py` writes the files that do not exist. Those that exist are never written again: they
stand for what deployed releases have written.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kstream_worker import app
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.config import Config, from_dict
from kstream_worker.detectors.pairs_state import VERSION
from kstream_worker.detectors.ranks import ROW
from kstream_worker.records import Committed, TopicPartition
from kstream_worker.state.format import decode_header

FOLDER = Path(__file__).parents[1] / "golden" / "state"
START_MS = 1_760_000_000_000
KEYS = (b"pump-0", b"pump-1", b"\xffbinary")
HALF = 70  # records of each key before the stop, and after it
OUTPUTS = ("drift-estimates", "drift-alarms")

BANKS: dict[str, dict[str, Any]] = {
    "pairs": {
        "input": {"x": "x", "y": "y", "dims": 2},
        "detector": {"arl": 1000, "warmup": 20, "on_alarm": "hold"},
        "model": {"atoms": 8},
    },
    "ranks": {
        "input": {"y": "y", "dims": 2},
        "detector": {"arl": 500, "warmup": 20, "dependence": "none"},
    },
}


# Where the rows of a bank were laid out anew, files of each layout stand beside each other.
ROWS = {"pairs": f"-row{VERSION}", "ranks": f"-row{ROW}"}


class Golden(NamedTuple):
    """One file.

    Attributes:
        bank: its name in `BANKS`.
        format: of the state.
        state: records of the state topic, as base64: key and value.
        input: records that follow, as base64: key and value, from the header's offset on.
        outputs: values of estimates and alarms for those, in order.
        models: SHA-256 of each key's model after them.
    """

    bank: str
    format: int
    state: list[tuple[str, str]]
    input: list[tuple[str, str]]
    outputs: dict[str, list[dict[str, Any]]]
    models: dict[str, str]


def config_of(bank: str, format: int) -> Config:
    sections = {name: dict(values) for name, values in BANKS[bank].items()}
    sections["input"] |= {"topic": "readings", "timestamp": "ts"}
    return from_dict(
        {
            "app": {"id": "drift"},
            "bus": {"kafka": {"bootstrap_servers": ["fake:9092"]}},
            "state": {"format": format},
            **sections,
        }
    )


def records_of(bank: str) -> list[tuple[bytes, bytes]]:
    """All of the input: the first key changes a little before the stop, so that its alarm is up at the stop."""
    rng = np.random.default_rng(17)
    records = []
    for t in range(2 * HALF):
        for key in KEYS:
            x, y = rng.standard_normal((2, 2)).round(3)
            y[0] += 5.0 if key == KEYS[0] and t >= HALF - 25 else 0.0
            y[1] -= 5.0 if key == KEYS[1] and t >= HALF + 30 else 0.0
            value: dict[str, Any] = {"ts": START_MS + 1000 * t, "y": y.tolist()}
            if bank == "pairs":
                value["x"] = x.tolist()
            records.append((key, json.dumps(value).encode()))
    return records


class Place:
    """A broker with one partition of each topic."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.broker = FakeBroker()
        for topic in ("readings", *app.output_topics(config), config.state.topic):
            self.broker.create_topic(topic)
        self.models: dict[str, str] = {}

    def feed(self, records: list[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self.broker.append("readings", 0, key, value, timestamp=START_MS)

    def run(self) -> None:
        """Read all there is and stop in good order."""
        clock = self.broker.clock
        bus = self.broker.bus(topic="readings", group="drift")
        worker = app.build_worker(self.config, bus=bus, clock=clock, sleep=clock.sleep, now_ms=lambda: START_MS)
        step: Callable[[], bool] = worker.step
        end = self.broker.log(TopicPartition("readings", 0)).end

        def stepping() -> bool:
            alive = step()
            committed = self.broker.committed("drift", "readings", 0)
            if committed is not None and committed.offset == end:
                for task in worker._tasks.values():
                    self.models = {
                        base64.b64encode(key).decode(): hashlib.sha256(
                            task.snapshot(task.ledger.keys.slot(key) or 0).model
                        ).hexdigest()
                        for key in sorted(task.ledger.keys)
                    }
                worker.request_stop()
            return alive

        worker.step = stepping  # type: ignore[method-assign]
        worker.run()

    def outputs(self) -> dict[str, list[dict[str, Any]]]:
        return {topic: [json.loads(one.value or b"") for one in self.broker.records(topic)] for topic in OUTPUTS}

    def state(self) -> list[tuple[bytes, bytes]]:
        """What a compacted state topic holds."""
        self.broker.compact(self.config.state.topic)
        return [(one.key or b"", one.value or b"") for one in self.broker.records(self.config.state.topic)]

    def put(self, golden: Golden) -> None:
        """The state, and the group's position as it was committed with it."""
        for key, value in _decoded(golden.state):
            self.broker.append(self.config.state.topic, 0, key, value)
            if key == b"\x00":
                header = decode_header(value)
        position = Committed(header.offset, header.token)
        self.broker.group("drift").positions[TopicPartition("readings", 0)] = position
        self.broker.gap("readings", 0, header.offset)
        self.broker.truncate("readings", 0, header.offset)
        self.feed(_decoded(golden.input))


def golden_of(bank: str, format: int) -> Golden:
    """What this release makes of it."""
    records = records_of(bank)
    half = len(records) // 2
    place = Place(config_of(bank, format))
    place.feed(records[:half])
    place.run()
    state = place.state()
    before = {topic: len(values) for topic, values in place.outputs().items()}
    place.feed(records[half:])
    place.run()
    outputs = {topic: values[before[topic] :] for topic, values in place.outputs().items()}
    return Golden(bank, format, _encoded(state), _encoded(records[half:]), outputs, place.models)


def read(path: Path) -> Golden:
    """A golden file."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Golden(**found)


def _encoded(records: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(base64.b64encode(key).decode(), base64.b64encode(value).decode()) for key, value in records]


def _decoded(records: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(base64.b64decode(key), base64.b64decode(value)) for key, value in records]


def main() -> None:
    """Write what is missing."""
    FOLDER.mkdir(exist_ok=True)
    for bank in BANKS:
        for format in (1, 2):
            path = FOLDER / f"state-{format}-{bank}{ROWS[bank]}.json"
            if not path.exists():
                path.write_text(json.dumps(golden_of(bank, format)._asdict(), indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
