"""Room occupancy, every 16th row, annotated as in TCPD (Candanedo, Feldheim, Energy and Buildings 112, 2016)."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from benchmarks.detection.tcpd import Annotated, annotated


def load(folder: Path) -> Annotated:
    """The series of `folder/occupancy`."""
    with (folder / "occupancy/occupancy_tcpd_every16.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    features = tuple(column for column in rows[0] if column != "time")
    values = np.array([[float(row[feature]) for feature in features] for row in rows])
    annotations = json.loads((folder / "occupancy/occupancy_tcpd_annotations.json").read_text())
    return annotated("occupancy", values, features, annotations)
