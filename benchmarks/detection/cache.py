"""What peers found, kept on disk: they are slow, and the same for the same version, setting and data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from benchmarks.detection.detector import Detector, by_running_rule
from benchmarks.detection.series import Floats, Found, Series


class Cache:
    """Files of one folder, named by a digest of everything that an answer depends on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, detector: Detector, series: Series, value: float) -> Found:
        """The detector's answer at a value of its parameter, the costly part from disk if it is there."""
        if detector.find is None:
            return by_running_rule(self._scores(detector, series), value, detector.lag)
        path = self._folder / f"{_digest(detector, series, repr(value))}.json"
        if path.is_file():
            alarms, changes = json.loads(path.read_text())
            return Found(tuple(alarms), tuple(changes))
        found = detector.find(series, value)
        path.write_text(json.dumps([found.alarms, found.changes]))
        return found

    def _scores(self, detector: Detector, series: Series) -> Floats:
        path = self._folder / f"{_digest(detector, series, 'score')}.npy"
        if path.is_file():
            scores: Floats = np.load(path)
            return scores
        assert detector.score is not None, f"{detector.name} has neither `find` nor `score`"
        scores = detector.score(series)
        np.save(path, scores)
        return scores


def _digest(detector: Detector, series: Series, value: str) -> str:
    digest = hashlib.sha256(
        "|".join((detector.name, detector.package, detector.version, detector.setting, series.name, value)).encode()
    )
    for part in (series.values, series.times, np.array([series.training])):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:32]
