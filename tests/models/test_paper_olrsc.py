"""The printed algorithm of paper 002 against reference vectors and against equations written out directly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_vectors import assert_close, load
from scipy import optimize

from kstream_worker.models.paper.olrsc import PaperOLRSC, Solution, expressed_variance

COMPLETE, MISSING = load("002_olrsc"), load("002_olrsc_missing")
TIGHT = 1e-12  # relative change at which Algorithm 2 ends


def _samples(rows: list[list[float | None]]) -> NDArray[np.float64]:
    return np.array(rows, dtype=np.float64)


@pytest.mark.parametrize(
    ("vectors", "case", "sparse"),
    [(COMPLETE, "steps", True), (MISSING, "sparse", True), (MISSING, "no_sparse", False)],
)
def test_reference_vectors_hold(vectors: dict, case: str, sparse: bool) -> None:
    given, rtol = vectors["input"], vectors["rtol"]
    model = PaperOLRSC(
        12, 4, lambda1=given["lambda1"], lambda2=given["lambda2"], sparse=sparse, epsilon=TIGHT, basis=given["D0"]
    )
    expected = {step["t"]: step for step in vectors["expected"][case]}
    for t, z in enumerate(_samples(given["z"]), start=1):
        found = model.update(z)
        if t in expected:
            _hold(model, found, expected.pop(t), rtol)
    assert not expected


def _hold(model: PaperOLRSC, found: Solution, step: dict, rtol: float) -> None:
    got_e, want_e = found.e, np.array(step["e"], dtype=np.float64)
    assert np.array_equal(np.isnan(got_e), np.isnan(want_e))
    assert_close(np.nan_to_num(got_e), np.nan_to_num(want_e), rtol)
    for name in ("v", "u", "cleaned"):
        assert_close(getattr(found, name), step[name], rtol)
    for name in ("M", "A", "B", "D", "lambda3"):
        assert_close(getattr(model, name), step[name], rtol)


def test_the_second_epoch_replaces_what_the_first_one_gave() -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 8))
    model = PaperOLRSC(8, 3, seed=2).fit(samples, epochs=3)
    assert model.t == 90
    assert_close(model.A, model.v.T @ model.v, 1e-10)
    assert_close(model.B, model.cleaned.T @ model.v, 1e-10)
    assert_close(model.M, samples.T @ model.u, 1e-10)


def test_one_iteration_against_equations_solved_by_a_general_minimiser() -> None:
    rng = np.random.default_rng(3)
    z, basis = rng.normal(size=6), rng.normal(size=(6, 2))
    model = PaperOLRSC(6, 2, lambda2=0.3, epsilon=TIGHT, basis=basis)
    found = model.update(z)

    def loss(v: NDArray[np.float64]) -> float:  # eq. 2.3 with its minimum over e
        r = np.abs(z - basis @ v)
        return float(np.where(r <= 0.3, 0.5 * r**2, 0.3 * r - 0.045).sum() + 0.5 * v @ v)

    best = optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9})
    assert_close(found.v, best.x, 1e-5)
    exact = (model.B + model.lambda3 * model.M) @ np.linalg.inv(model.A + model.lambda3 * np.eye(2))

    def surrogate(d: NDArray[np.float64]) -> float:  # eq. 3.3
        a_hat = model.A + model.lambda3 * np.eye(2)
        return float(0.5 * np.trace(d.T @ d @ a_hat) - np.trace(d.T @ (model.B + model.lambda3 * model.M)))

    assert surrogate(exact) <= surrogate(model.D) <= surrogate(basis)


def test_expressed_variance_is_a_share() -> None:
    rng = np.random.default_rng(4)
    truth = rng.normal(size=(9, 3))
    assert expressed_variance(truth @ rng.normal(size=(3, 3)), truth) == pytest.approx(1.0)
    assert expressed_variance(np.repeat(truth[:, :1], 4, axis=1), truth) < 1.0  # columns that repeat count once
    assert expressed_variance(np.zeros((9, 2)), truth) == 0.0


def test_wrong_input_changes_nothing() -> None:
    model = PaperOLRSC(3, 1)
    with pytest.raises(ValueError, match="shape"):
        model.update([1.0, 2.0])
    with pytest.raises(ValueError, match="finite"):
        model.update([1.0, 2.0, np.inf])
    assert model.t == 0
    with pytest.raises(ValueError, match="positive"):
        PaperOLRSC(3, 1, lambda2=0.0)
