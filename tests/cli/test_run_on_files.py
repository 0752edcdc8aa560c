"""`kstream-worker run` on files: what it says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kstream_worker.__main__ import main


def test_a_run_that_ends_well_says_what_came_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [*(json.dumps({"key": "a", "y": number}) for number in range(5)), "broken", '{"key": "a", "z": 1}']
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, ""]))
    settings = {
        "app.id": "totals",
        "bus.kind": "files",
        "bus.files.inputs": tmp_path / "in.jsonl",
        "bus.files.output_dir": tmp_path / "out",
        "input.y": "y",
        "input.key": "key",
        "telemetry.port": "none",
    }
    assert main(["run", *(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))]) == 0
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    (said,) = [event for event in events if event["event"] == "published"]
    assert (said["estimate"], said["alarm"], said["dead_letter"]) == (5, 0, 2)
