"""A model of another package, installed like any other, from end to end on files."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from plugin_support import REPOSITORY, environment

from kstream_worker.__main__ import main
from kstream_worker.bus.files import read_output

START_MS = 1_760_000_000_000
CONFIG = """
app.id = "pumps"
[bus]
kind = "files"
files = {{ inputs = ["{folder}/in.jsonl"], output_dir = "{folder}/out" }}
[input]
y = ["temp", "flow"]
key = "id"
timestamp = "ts"
[model]
kind = "forecast"
options = {{ memory = {memory} }}
[detector]
arl = 1000
warmup = 100
dependence = "none"
[telemetry]
port = "none"
"""


def write_input(path: Path) -> None:
    """Two pumps; the flow of the second shakes from sample 400 on."""
    rng = random.Random(2)
    lines = []
    for n in range(600):
        for key, width in (("pump-0", 1.0), ("pump-1", 6.0 if n >= 400 else 1.0)):
            sample = {"id": key, "ts": START_MS + 1000 * n, "temp": rng.gauss(50, 1), "flow": rng.gauss(0, width)}
            lines.append(json.dumps(sample))
    path.write_text("\n".join([*lines, ""]))


def run(site: Path, config: Path) -> None:
    command = [sys.executable, "-m", "kstream_worker", "run", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment(site))
    assert done.returncode == 0, done.stderr


def said(path: Path) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in read_output(path)]


@pytest.mark.timeout(240)
def test_a_package_adds_a_kind_of_models(
    plugin_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_input(tmp_path / "in.jsonl")
    config = tmp_path / "pumps.toml"
    config.write_text(CONFIG.format(folder=tmp_path, memory=50))
    run(plugin_site, config)
    estimates, alarms = said(tmp_path / "out" / "pumps-estimates.jsonl"), said(tmp_path / "out" / "pumps-alarms.jsonl")
    schemas = REPOSITORY / "schemas"
    for kind, found in (("estimate", estimates), ("alarm", alarms)):
        validator = Draft202012Validator(json.loads((schemas / f"{kind}.schema.json").read_text()))
        for one in found[::50]:
            validator.validate(one)
    assert len(estimates) == 1200
    assert {one["model"] for one in estimates} == {"forecast"}
    assert estimates[0]["values"] == {"expected.temp": None, "expected.flow": None}
    assert abs(estimates[-1]["values"]["expected.temp"] - 50) < 1
    first = alarms[0]
    assert (first["key"], first["reason"], first["guarantee"]) == ("pump-1", "misfit", "approximate")
    assert abs(first["change_seq"] - 401) < 10
    assert first["features"][0]["name"] == "flow"
    assert first["features"][0]["weight"] > 0.8
    assert not [one for one in alarms if one["key"] == "pump-0"]

    monkeypatch.syspath_prepend(plugin_site)
    flags = ["--config", str(config)]
    assert main(["state", "show", "pump-1", "--json", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["seq"] == 600
    assert main(["state", "verify", *flags]) == 0
    config.write_text(CONFIG.format(folder=tmp_path, memory=60))
    assert main(["state", "verify", *flags]) == 1
    assert "configuration" in capsys.readouterr().out
    config.write_text(CONFIG.format(folder=tmp_path, memory=0))
    assert main(["check", "--offline", *flags]) == 78
    assert "memory is 0" in capsys.readouterr().out
    assert main(["calibrate", "--output", str(tmp_path / "calibration"), *flags]) == 78
    assert "not those of forecast" in capsys.readouterr().err
