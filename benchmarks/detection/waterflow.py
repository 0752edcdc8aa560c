"""Hourly water flow in a pipeline branch, March to May 2022 (in River's wheel; no labels: read with the eye)."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks.detection.series import Series


def load(folder: Path) -> Series:
    """The series of `folder/waterflow`."""
    with (folder / "waterflow/water-flow.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    times = [round(datetime.fromisoformat(row["Time"]).timestamp() * 1000) for row in rows]
    values = np.array([[float(row["Water flow [l/s]"])] for row in rows])
    return Series("water-flow", values, np.array(times), ("flow",), 0)
