"""Drift from commissioning on files: the reference file, and a worker that ends and goes on with equal bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kstream_worker import app
from kstream_worker.bus.files import files_bus, read_output
from kstream_worker.config import Config, from_dict
from kstream_worker.errors import ConfigError
from kstream_worker.records import End, TopicPartition
from kstream_worker.state.format import decode_snapshot

START_MS = 1_760_000_000_000
KEYS = ("pump-1", "pump-2")
RECORDS = 800


def readings() -> list[str]:
    """Two pumps in turn; the first drifts from its own record 500 on."""
    rng = np.random.default_rng(5)
    lines = []
    for number in range(RECORDS):
        for key in KEYS:
            shift = 3.0 if key == KEYS[0] and number >= 500 else 0.0
            y = [float(value) for value in rng.normal(size=2) + shift]
            lines.append(json.dumps({"id": key, "ts": START_MS + 1000 * number, "y": y}))
    return lines


def commissioned(key: str | None, n: int = 300, seed: int = 2) -> list[str]:
    rows = np.random.default_rng(seed).normal(size=(n, 2))
    name = {} if key is None else {"id": key}
    return [json.dumps({**name, "y": [float(value) for value in row]}) for row in rows]


def config_of(folder: Path, file: Path | None = None, outputs: str = "out", **changes: Any) -> Config:
    inputs = {"inputs": [str(folder / "in.jsonl")], "output_dir": str(folder / outputs)}
    given: dict[str, Any] = {
        "app": {"id": "drift"},
        "bus": {"kind": "files", "files": inputs},
        "input": {"y": "y", "dims": 2, "timestamp": "ts", "key": "id"},
        "pairing": {"mode": "reference"},
        "reference": {} if file is None else {"file": str(file)},
        "detector": {"arl": 10_000, "dead_time": "100s"},
        "output": {"estimates": "estimates", "alarms": "alarms", "dead_letters": "dead-letters"},
    }
    for section, values in changes.items():
        given[section] = {**given.get(section, {}), **values}
    return from_dict(given)


def work(config: Config, lines: list[str]) -> dict[str, list[tuple[bytes | None, bytes | None]]]:
    """Run over a file of these lines to its end; all outputs so far."""
    Path(config.bus.files.inputs[0]).write_text("\n".join([*lines, ""]))
    replace = msgspec.structs.replace
    often = replace(config, commit=replace(config.commit, interval=0.0), state=replace(config.state, interval=0.2))
    app.build_worker(often, now_ms=lambda: START_MS).run()
    folder = Path(config.bus.files.output_dir)
    return {
        topic: [(record.key, record.value) for record in read_output(folder / f"{topic}.jsonl")]
        for topic in ("estimates", "alarms")
        if (folder / f"{topic}.jsonl").exists()
    }


def models(config: Config) -> dict[bytes, bytes]:
    """The model of each key, byte for byte."""
    bus = files_bus(list(config.bus.files.inputs), config.bus.files.output_dir, state_topic="drift-state")
    assert bus.reader is not None
    cluster, reader = bus.cluster(), bus.reader()
    partition = TopicPartition("drift-state", 0)
    reader.assign({partition: 0})
    end = cluster.end([partition], End.HIGH)[partition]
    found: dict[bytes, bytes] = {}
    while reader.position(partition) < end:
        for batch in reader.poll(0.1):
            for key, value in zip(batch.keys, batch.values, strict=True):
                name = next((name for name in KEYS if key is not None and name.encode() in key), None)
                if name is not None and value is not None:
                    found[name.encode()] = decode_snapshot(value).model
    return found


def alarms_of(outputs: dict[str, list[tuple[bytes | None, bytes | None]]]) -> list[dict[str, Any]]:
    return [json.loads(value or b"") for _, value in outputs["alarms"]]


def test_a_worker_that_ends_and_goes_on_has_equal_bits(tmp_path: Path) -> None:
    lines = readings()
    file = tmp_path / "reference.jsonl"
    file.write_text("\n".join(commissioned("pump-1")))
    whole = config_of(tmp_path, file, outputs="whole")
    expected = work(whole, lines)
    halves = config_of(tmp_path, file)
    for end in (900, 1030, 1200, len(lines)):  # while pump-2 learns, the drift pays, and the alarm is up
        found = work(halves, lines[:end])
    assert found == expected
    assert models(halves) == models(whole)
    assert len(models(whole)) == len(KEYS)
    first, *rest = alarms_of(found)
    assert (first["key"], first["transition"], first["direction"]) == ("pump-1", "raised", "up")
    assert first["guarantee"] == "approximate"
    assert "300 samples of this key in the reference file" in first["guarantee_reason"]
    assert [alarm["key"] for alarm in rest] == ["pump-1"] * len(rest)  # it drifts on: alarm after alarm
    states = [json.loads(value or b"") for _, value in found["estimates"]]
    assert {one["state"] for one in states if one["key"] == "pump-1"} == {"armed", "raised"}
    assert [one["state"] for one in states if one["key"] == "pump-2"] == ["warming"] * 500 + ["armed"] * 300


def test_a_changed_file_is_a_changed_configuration(tmp_path: Path) -> None:
    lines = readings()
    for name, seed in (("a", 1), ("b", 1), ("c", 3)):
        (tmp_path / name).write_text("\n".join(commissioned("pump-1", seed=seed)))
    names = [app.build_bank(config_of(tmp_path, tmp_path / name)).fingerprint for name in "abc"]
    assert names[0] == names[1] != names[2]
    work(config_of(tmp_path, tmp_path / "a"), lines[:1010])
    with pytest.raises(ConfigError, match=r"models in the state are of another configuration.*reference"):
        work(config_of(tmp_path, tmp_path / "c"), lines)


def test_a_range_of_time_and_lines_without_a_key(tmp_path: Path) -> None:
    lines = readings()
    span = {"start": "2025-10-09T08:53:20Z", "end": "2025-10-09T08:58:00Z"}  # 281 samples from START_MS on
    alarm = alarms_of(work(config_of(tmp_path, outputs="range", reference=span), lines))[0]
    assert "281 samples of the key from the configured time range." in alarm["guarantee_reason"]
    file = tmp_path / "shared.csv"
    rows = np.random.default_rng(3).normal(size=(300, 2))
    file.write_text("\n".join(["u,v", *(f"{u},{v}" for u, v in rows)]))
    bound = {"y": ["u", "v"], "dims": None}
    flat = [json.dumps({**(row := json.loads(line)), "u": row["y"][0], "v": row["y"][1]}) for line in lines]
    alarm = alarms_of(work(config_of(tmp_path, file, outputs="shared", input=bound), flat))[0]
    assert "300 samples without a key in the reference file" in alarm["guarantee_reason"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{}"], "starts at byte 0.*y"),
        ([*commissioned("a"), '{"id": "a", "y": [1, 1e200]}'], "not finite, or too large"),
        ([*commissioned("a"), "broken"], "the line that starts at byte"),
        (["", " "], "holds no samples"),
        ([*commissioned("a"), *commissioned("b", n=199)], r"fewer than 200 samples of key 'b' \(199\)"),
        (commissioned(None, n=10), r"lines without a key \(10\)"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_the_place(tmp_path: Path, lines: list[str], words: str) -> None:
    file = tmp_path / "reference.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=words):
        app.build_bank(config_of(tmp_path, file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*gone\.jsonl"):
        app.build_bank(config_of(tmp_path, tmp_path / "gone.jsonl"))
