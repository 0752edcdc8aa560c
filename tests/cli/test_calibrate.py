"""`kstream-worker calibrate` from end to end, on files and on the fake broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from kstream_worker.__main__ import main
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.calibration import plots
from kstream_worker.records import TopicPartition

SCHEMA = Path(__file__).parents[2] / "schemas" / "calibration.schema.json"
START_MS = 1_760_000_000_000
CONFIG = """
[app]
id = "pumps"
[bus]
kind = "files"
[bus.files]
inputs = "{inputs}"
[input]
key = "device"
timestamp = "ts"
y = ["v.a", "v.b"]
[detector]
arl = 10000
"""


def lines(devices: int, n: int, *, paired: bool = False, changed: str = "") -> list[bytes]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(n):
        for k in range(devices):
            y = rng.standard_normal(2)
            y[0] += 3.0 * (changed == f"d{k}" and i >= n // 2)
            record: dict[str, Any] = {"device": f"d{k}", "ts": START_MS + 60_000 * i, "v": {"a": y[0], "b": y[1]}}
            if paired:
                record["w"] = {"a": rng.standard_normal(), "b": rng.standard_normal()}
            made.append(json.dumps(record).encode())
    return made


def configured(folder: Path, records: list[bytes]) -> Path:
    history = folder / "history.jsonl"
    history.write_bytes(b"\n".join(records) + b"\n")
    config = folder / "pumps.toml"
    config.write_text(CONFIG.format(inputs=history))
    return config


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "calibration.json").read_text())
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(found)
    return found


@pytest.fixture
def _without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("matplotlib")

    monkeypatch.setattr(plots, "draw", missing)


def test_history_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = configured(tmp_path, [*lines(2, 2200, changed="d1"), b"no JSON"]), tmp_path / "out"
    assert main(["calibrate", "--config", str(config), "--output", str(out)]) == 0
    found = report(out)
    assert found["input"]["rejected"] == {"not_decodable": 1}
    assert [key["alarms_in_history"] for key in found["keys"]] == [0, 1]
    (alarm,) = found["keys"][1]["alarms"]
    assert 1100 <= alarm["row"] < 1150
    assert alarm["features"][0] == "a"
    assert found["fleet"]["guarantees"].keys() <= {"exact_if_iid", "approximate"}
    shift = next(one for one in found["fleet"]["delays"] if one["change"] == "shift 2")
    assert shift["share"] == 1.0
    assert shift["median_s"] == 60 * (shift["median_samples"] - 1)
    lengths = found["fleet"]["run_lengths"]
    assert [one["arl"] for one in lengths] == [1e3, 1e4, 1e5, 1e6]
    assert lengths[1]["alarms"] == found["fleet"]["alarms_in_history"] == 1
    shown = capsys.readouterr().out
    assert "4,401 records read, 1 refused (most often not_decodable); 4,400 samples of 2 keys" in shown
    assert "arl = 2,900" in shown  # 2,881 samples a day
    assert sorted(path.name for path in out.iterdir()) == [
        "calibration.json", "delays.png", "history.png", "proposed.toml", "rates.png", "run_lengths.png",
    ]  # fmt: skip
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in ("delays.png", "history.png"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.jsonl", "out", "pumps.toml"]
    assert main(["check", "--config", str(out / "proposed.toml")]) == 0
    assert "arl = 2900.0" in (out / "proposed.toml").read_text()


@pytest.mark.usefixtures("_without_matplotlib")
def test_pairs_keys_and_limits_of_time(tmp_path: Path) -> None:
    config, out = configured(tmp_path, lines(4, 900, paired=True)), tmp_path / "out"
    pairs = ["--set", 'input.x=["w.a","w.b"]', "--keys", "2", "--output", str(out), "--false-alarms-per-day", "0.1"]
    until = ["--from", "2025-10-09T09:00:00Z", "--until", "2025-10-10T00:00:00+02:00"]
    assert main(["calibrate", "--config", str(config), *pairs, *until]) == 0
    found = report(out)
    assert len(found["keys"]) == 2
    assert found["input"]["keys"] == 4
    assert {key["samples"] for key in found["keys"]} == {13 * 60}
    assert found["fleet"]["guarantees"] == {"exact_if_iid": 2}
    assert found["proposal"]["settings"][0]["value"] == 58_000.0  # 5,760 samples a day
    assert sorted(path.name for path in out.iterdir()) == ["calibration.json", "proposed.toml"]
    assert main(["check", "--offline", "--config", str(out / "proposed.toml")]) == 0


@pytest.mark.usefixtures("_without_matplotlib")
def test_the_same_history_gives_the_same_report(tmp_path: Path) -> None:
    config = configured(tmp_path, lines(1, 700))
    for name in ("one", "two"):
        assert main(["calibrate", "--config", str(config), "--output", str(tmp_path / name)]) == 0
    for name in ("calibration.json", "proposed.toml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.usefixtures("_without_matplotlib")
def test_a_topic_is_only_read(broker: FakeBroker, tmp_path: Path) -> None:
    broker.create_topic("readings", 2)
    for number, value in enumerate(lines(2, 700)):
        broker.append("readings", number % 2, key=b"d%d" % (number % 2), value=value, timestamp=START_MS)
    config = configured(tmp_path, [])
    kafka = ["--set", "bus.kind=kafka", "--bootstrap-servers", "127.0.0.1:1", "--input-topic", "readings"]
    assert main(["calibrate", "--config", str(config), *kafka, "--output", str(tmp_path / "out")]) == 0
    assert report(tmp_path / "out")["input"]["partitions"] == 2
    assert [key["samples"] for key in report(tmp_path / "out")["keys"]] == [700, 700]
    assert len(broker.records("readings")) == 1400
    assert broker.committed("pumps", *TopicPartition("readings", 0)) is None


@pytest.mark.parametrize(
    ("records", "flags", "code", "message"),
    [
        ([], [], 1, "holds no records"),
        ([b"{}"] * 3, [], 1, "all 3 records of"),
        (None, ["--until", "2020-01-01T00:00:00Z"], 1, "has an event time until 2020-01-01T00:00:00Z"),
        (None, ["--set", "bus.files.inputs=-"], 78, "standard input can be read only once"),
        (None, ["--output", "/proc/nowhere"], 78, "--output /proc/nowhere cannot be made"),
        (None, ["--from", "2020-01-01T00:00:00Z", "--set", "input.timestamp="], 78, "bind input.timestamp"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    records: list[bytes] | None,
    flags: list[str],
    code: int,
    message: str,
) -> None:
    config = configured(tmp_path, lines(1, 5) if records is None else records)
    where = [] if "--output" in flags else ["--output", str(tmp_path / "out")]
    assert main(["calibrate", "--config", str(config), *where, *flags]) == code
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_topic_that_does_not_exist(broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configured(tmp_path, [])
    kafka = ["--set", "bus.kind=kafka", "--bootstrap-servers", "127.0.0.1:1", "--input-topic", "nowhere"]
    assert main(["calibrate", "--config", str(config), *kafka, "--output", str(tmp_path / "out")]) == 78
    assert "the input topic nowhere does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--from", "yesterday"], ["--until", "2020-01-01"], ["--keys", "0"], ["--false-alarms-per-day", "0"]]
)
def test_wrong_usage(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["calibrate", *flags])
    assert caught.value.code == 2
    assert f"argument {flags[0]}: " in capsys.readouterr().err
