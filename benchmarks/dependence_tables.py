"""The tables of `kstream_worker.detectors.dependence`, simulated anew.

    python -m benchmarks.dependence_tables [--short]

Prints Python constants; some minutes, `--short` a few seconds with wide errors.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.dependence import LENGTHS, LEVELS, UNIT_ROOT_LENGTHS
from kstream_worker.detectors.ranks_sample import clip_raw
from kstream_worker.detectors.whitening import (
    AR_COV,
    AR_ORDER,
    AR_TERMS,
    ar_reset,
    ar_step,
    clipped_squares,
    ljung_box,
    unit_root_t,
)
from kstream_worker.models import scaling
from kstream_worker.numerics.jit import jit

Matrix = NDArray[np.float64]

LAWS = (math.inf, 5.0)  # degrees of freedom of Student's t
UNIT_ROOT_LEVEL = 0.05


@jit
def raw_statistics(x: np.ndarray, out: np.ndarray) -> None:
    """out[r] <- Q of row r, scaled and clipped as the detector does it."""
    n = x.shape[1]
    values = np.empty(n)
    for r in range(len(x)):
        values[:] = x[r]
        center, scale = scaling.center_and_scale(values, n)
        for i in range(n):
            values[i] = clip_raw(x[r, i], center, scale)
        out[r] = ljung_box(values, n)


@jit
def innovation_statistics(x: np.ndarray, skip: int, levels: np.ndarray, squares: np.ndarray, roots: np.ndarray) -> None:
    """Q of innovations from `skip` on, Q of their clipped squares, and the Dickey-Fuller statistic, row by row."""
    n = x.shape[1]
    values = np.empty(n)
    work = np.empty(n)
    ring, coef, cov, gain = np.empty(AR_ORDER), np.empty(AR_TERMS), np.empty(AR_COV), np.empty(AR_TERMS)
    for r in range(len(x)):
        values[:] = x[r]
        center, scale = scaling.center_and_scale(values, n - skip)
        ar_reset(ring, coef, cov)
        for i in range(n):
            s = clip_raw(x[r, i], center, scale)
            values[i] = ar_step(s, i >= AR_ORDER, ring, coef, cov, gain)
        for i in range(skip, n):
            values[i - skip] = values[i]
        roots[r] = unit_root_t(coef, cov, values, n - skip)
        levels[r] = ljung_box(values, n - skip)
        clipped_squares(values, n - skip, work)
        squares[r] = ljung_box(values, n - skip)


def draw(rng: np.random.Generator, law: float, shape: tuple[int, int]) -> Matrix:
    """Independent samples."""
    return rng.standard_normal(shape) if math.isinf(law) else rng.standard_t(law, shape)


def quantiles(statistics: Matrix) -> Matrix:
    """One table row: the upper quantiles at `LEVELS`."""
    return np.quantile(statistics, 1.0 - LEVELS)


def table_rows(n: int, runs: int) -> tuple[Matrix, Matrix, Matrix]:
    """Rows of the three Ljung-Box tables for a length; innovations are those after n / 2 samples of learning."""
    rng = np.random.default_rng(n)
    rows: tuple[list[Matrix], list[Matrix], list[Matrix]] = ([], [], [])
    for law in LAWS:
        found = np.empty((3, runs))
        for at in range(0, runs, 2_000):
            part = slice(at, at + 2_000)
            raw_statistics(draw(rng, law, (2_000, n)), found[0, part])
            x = draw(rng, law, (2_000, n + n // 2))
            innovation_statistics(x, n // 2, found[1, part], found[2, part], np.empty(2_000))
        for row, statistics in zip(rows, found, strict=True):
            row.append(quantiles(statistics))
    return np.max(rows[0], axis=0), np.max(rows[1], axis=0), np.max(rows[2], axis=0)


def unit_root_row(n: int, runs: int) -> float:
    """The lower 5 % quantile of the Dickey-Fuller statistic of n samples of a random walk, the most negative law."""
    rng = np.random.default_rng(n)
    rows = []
    for law in LAWS:
        roots = np.empty(runs)
        for at in range(0, runs, 1_000):
            x = np.cumsum(draw(rng, law, (1_000, n)), axis=1)
            skip = n // 3
            innovation_statistics(x, skip, np.empty(1_000), np.empty(1_000), roots[at : at + 1_000])
        rows.append(float(np.quantile(roots, UNIT_ROOT_LEVEL)))
    return min(rows)


def main(arguments: list[str]) -> int:
    """Print the constants."""
    scale = 0.01 if "--short" in arguments else 1.0
    rows = [table_rows(int(n), 2_000 * max(1, int(scale * 15))) for n in LENGTHS]
    for name, table in zip(("RAW", "INNOVATIONS", "SQUARES"), zip(*rows, strict=True), strict=True):
        print(f"{name} = np.array([")
        for row in table:
            print("    [" + ", ".join(f"{value:.2f}" for value in row) + "],")
        print("])")
    roots = [unit_root_row(int(n), 1_000 * max(1, int(scale * 10))) for n in UNIT_ROOT_LENGTHS]
    print("UNIT_ROOT = np.array([" + ", ".join(f"{value:.3f}" for value in roots) + "])")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
