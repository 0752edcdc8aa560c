"""Pictures, tables and the report of keys with odd names and odd histories."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from calibration_data import history, normal
from jsonschema import Draft202012Validator

from kstream_worker.calibration import plots, report, tables
from kstream_worker.calibration.history import KeyHistory, Limits
from kstream_worker.calibration.propose import propose
from kstream_worker.calibration.reading import Read
from kstream_worker.calibration.runs import Settings
from kstream_worker.calibration.study import Input, study
from kstream_worker.detectors.ranks import RankBank

SCHEMA = Path(__file__).parents[2] / "schemas" / "calibration.schema.json"


def untimed(one: KeyHistory) -> KeyHistory:
    return KeyHistory(one.key, one.partition, np.full(len(one), -1), None, one.y, one.starts)


def test_odd_keys(tmp_path: Path) -> None:
    histories = [
        history(normal(400, 2), key="$x^{$ 泵 🌊".encode()),
        history(normal(1, 2), key=b"\xff\x00"),
        history(np.full((400, 2), 7.0), key=b"constant"),
        untimed(history(1e150 * np.tanh(normal(400, 2)), key=b"huge")),
        history(np.concatenate([np.zeros((380, 2)), 1e150 * np.ones((20, 2))]), key=b"nearly constant"),
    ]
    found = Input(Read(1, 1601), 5, True, 1601, None, -1, -1, Limits(9, 999))
    settings = Settings(1e3, "rebase", 0.0)
    measured, runs = study(
        found,
        ("a", "b"),
        settings,
        histories,
        lambda other: RankBank(2, arl=other.arl, warmup=100, dependence="none", on_alarm=other.on_alarm),
        0,
        lambda _: None,
    )
    proposal = propose(measured, runs, 1.0, timed=False)
    document = json.loads(json.dumps(report.document(measured, proposal, "pumps"), allow_nan=False))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert document["keys"][3]["first_time"] is None
    assert document["keys"][2]["delays"][0]["places"] == 0
    assert document["keys"][0]["delays"][0]["places"] == 12
    text = "\n".join(tables.lines(measured, proposal))
    assert "base64:/wA=" in text
    assert "not armed" in text
    assert [path.name for path in plots.draw(tmp_path, measured)] == [
        "rates.png", "delays.png", "run_lengths.png", "history.png",
    ]  # fmt: skip
