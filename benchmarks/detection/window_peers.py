"""Scores of two neighbouring windows: changepoynt's singular spectrum transform, and RULSIF (Liu et al. 2013)."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.detector import Detector, by_score, scaled
from benchmarks.detection.series import Floats, Series
from kstream_worker.models.baselines.rulsif import RULSIF

WINDOW = 50  # rows of each of the two windows (Liu, Yamada, Collier, Sugiyama, Neural Networks 43, 2013: n = 50)
STEP = 10  # rows from one comparison to the next
ESST_WINDOW = 30  # rows; changepoynt asks for "a length to see the pattern" and has no default
ESST_STEP = 5
ESST_LAG = ESST_WINDOW + ESST_STEP // 2  # rows that its score at a row looks ahead: half as many windows, and their lag


def detectors() -> list[Detector]:
    """RULSIF, from this repository."""
    return [by_score("RULSIF, windowed", "", f"alpha .1, windows {WINDOW}, every {STEP} rows", _rulsif, WINDOW)]


def changepoynt() -> list[Detector]:
    """changepoynt's default method.

    Raises:
        ModuleNotFoundError: changepoynt is not installed.
    """
    import changepoynt.algorithms.esst as _  # noqa: F401 (asks whether it is there)

    return [
        by_score("changepoynt ESST", "changepoynt", f"window {ESST_WINDOW}, every {ESST_STEP} rows", _esst, ESST_LAG)
    ]


def _rulsif(series: Series) -> Floats:
    """Symmetric divergence of the last two windows; widths by the median distance, lambda .1."""
    z = scaled(series)
    scores = np.full(len(z), np.nan)
    last = np.nan
    for row in range(len(z)):
        if row + 1 >= 2 * WINDOW and (row + 1) % STEP == 0:
            before, after = z[row + 1 - 2 * WINDOW : row + 1 - WINDOW], z[row + 1 - WINDOW : row + 1]
            last = _divergence(before, after) + _divergence(after, before)
        scores[row] = last
    return scores


def _divergence(x: Floats, y: Floats) -> float:
    distances = np.sqrt(np.square(x[::2, None] - y[None, ::2]).sum(axis=2))
    width = float(np.median(distances))
    if not width > 0.0:
        return 0.0
    return RULSIF(alpha=0.1, penalty="l2", sigma=width, lam=0.1, atoms=WINDOW).fit(x, y).divergence(x, y)


def _esst(series: Series) -> Floats:
    """The largest over features, each score at the last row that it has looked at."""
    from changepoynt.algorithms.esst import ESST

    columns = []
    for column in scaled(series).T:
        model = ESST(ESST_WINDOW, scoring_step=ESST_STEP)
        scores = np.full(len(column), np.nan)
        first = model.covered_regions()[0]
        if first < len(column):
            scores[first:] = model.transform(column)[first - ESST_LAG : len(column) - ESST_LAG]
        columns.append(scores)
    return np.asarray(np.max(columns, axis=0), dtype=np.float64)
