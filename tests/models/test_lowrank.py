"""The compiled parts of low-rank subspace clustering: reference vectors, optimality, clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_vectors import assert_close, load

from kstream_worker.models.lowrank import MISSING, SEEN, Work, accumulate, code, gram, improve_basis, make_work

COMPLETE, MISSING_ENTRIES = load("002_olrsc"), load("002_olrsc_missing")
Floats = NDArray[np.float64]


def solve(basis: Floats, p: int, d: int, z: Floats, lambda2: float, w: Work) -> int:
    gram(basis, p, d, w.gram)
    w.status[:] = np.where(np.isnan(z), MISSING, SEEN)
    return code(basis, p, d, z, 1.0, lambda2, 1e-12, w)


def by_column(matrix: Floats) -> Floats:
    return np.ascontiguousarray(matrix.T).ravel()


@pytest.mark.parametrize(
    ("vectors", "case", "sparse"),
    [(COMPLETE, "steps", True), (MISSING_ENTRIES, "sparse", True), (MISSING_ENTRIES, "no_sparse", False)],
)
def test_reference_vectors_hold(vectors: dict, case: str, sparse: bool) -> None:
    given, rtol, p, d = vectors["input"], vectors["rtol"], 12, 4
    basis = by_column(np.array(given["D0"]))
    a, b, m, step = np.zeros(d * d), np.zeros(d * p), np.zeros(d * p), np.zeros(p)
    delta = float(given["lambda2"]) if sparse else math.inf
    expected = {one["t"]: one for one in vectors["expected"][case]}
    w = make_work(p, d)
    for t, z in enumerate(np.array(given["z"], dtype=np.float64), start=1):
        solve(basis, p, d, z, delta, w)
        cleaned = basis.reshape(d, p).T @ w.v + np.clip(w.residual, -delta, delta)
        lambda3 = float(np.sqrt(t / p))
        accumulate(basis, p, d, np.nan_to_num(z), cleaned, w.v, 1.0, lambda3, a, b, m)
        improve_basis(basis, p, d, a, b, m, 1.0, lambda3, 0.0, step)
        if t in expected:
            want = expected.pop(t)
            assert_close(w.v, want["v"], rtol)
            assert_close(cleaned, want["cleaned"], rtol)
            lower = np.tril(a.reshape(d, d))
            assert_close(lower + np.tril(lower, -1).T, want["A"], rtol)
            for name, got in (("B", b), ("M", m), ("D", basis)):
                assert_close(got.reshape(d, p).T, want[name], rtol)
    assert not expected


def test_the_code_is_optimal_to_its_tolerance() -> None:
    rng = np.random.default_rng(0)
    most = 0
    for trial in range(300):
        p, d = int(rng.integers(1, 40)), int(rng.integers(1, 20))
        basis = rng.normal(size=(p, d)) * 10.0 ** rng.uniform(-3, 2)
        z = basis @ rng.normal(size=d) + rng.standard_t(1.0, size=p) * 10.0 ** rng.uniform(-2, 2)
        z[rng.random(p) < 0.3 * (trial % 3)] = np.nan
        delta, w = float(10.0 ** rng.uniform(-3, 1)), make_work(p, d)
        most = max(most, solve(by_column(basis), p, d, z, delta, w))
        rest = np.nan_to_num(z - basis @ w.v)
        pull = basis.T @ np.clip(rest, -delta, delta)
        gradient = w.v - pull
        scale = 1e-12 * np.abs(basis).sum() * (delta + np.abs(np.nan_to_num(z)).max())  # rounding
        assert np.linalg.norm(gradient) <= 1e-11 * (1.0 + np.linalg.norm(w.v)) + scale
        assert np.array_equal(w.status == MISSING, np.isnan(z))
    assert most <= 40
