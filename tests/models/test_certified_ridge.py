from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import reference_vectors as vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.models import CertifiedSolve, solve_certified
from kstream_worker.models.paper import solve_sketched

VECTORS = vectors.load("001_certified_ridge")
SYSTEMS = list(zip(VECTORS["input"]["systems"], VECTORS["expected"]["systems"], strict=True))


@pytest.mark.parametrize(("case", "expected"), SYSTEMS, ids=[case["name"] for case, _ in SYSTEMS])
def test_the_paper_s_algorithm_matches_the_reference(case: dict[str, Any], expected: dict[str, Any]) -> None:
    K, y, tau = np.array(case["K"]), np.array(case["y"]), case["tau"]
    answer = solve_sketched(K, y, tau, np.eye(len(y))[:, case["landmarks"]], eta=case["eta"], budget=case["T"])
    assert answer.status in expected["status_accepted"]
    a, u = np.array(expected["exact_a"]), np.array(expected["exact_u"])
    k_star = np.array(case["k_star"])
    tiny = 1e-15 * expected["norm_y"] / tau**2  # of the expected numbers' own rounding
    assert np.linalg.norm(answer.b - a) <= answer.coefficient_bound + tiny
    assert np.linalg.norm(K @ answer.b - u) <= answer.fit_bound + tiny
    assert np.linalg.norm(answer.fit - u) <= answer.sketched_fit_bound + tiny
    assert abs(k_star @ (answer.b - a)) <= answer.prediction_bound(case["k_star_star"]) + tiny
    assert answer.fit_bound <= answer.paper_fit_bound
    if "b" in expected:
        scale = VECTORS["rtol"] * max(1.0, expected["norm_y"])
        assert answer.residual_norm == pytest.approx(expected["residual_original"], rel=0.0, abs=scale)
        assert answer.sketched_norm == pytest.approx(expected["residual_sketched"], rel=0.0, abs=scale)
        assert np.abs(answer.b - expected["b"]).max() <= scale / tau
        assert np.abs(answer.fit - expected["fit_sketched"]).max() <= scale / tau
        assert np.abs(answer.factor @ answer.factor.T - expected["sketched_K"]).max() <= 1e-9
        sharp = replace(answer, kernel_norm=np.linalg.norm(K, 2))
        bounds = expected["bounds"]
        for got, name in (
            (sharp.coefficient_bound, "coefficient"),
            (sharp.paper_fit_bound, "fit_paper"),
            (sharp.fit_bound, "fit_sharp"),
            (sharp.sketched_fit_bound, "fit_sketch"),
            (sharp.prediction_bound(case["k_star_star"]), "prediction_tight"),
        ):
            assert got == pytest.approx(bounds[name], rel=1e-7, abs=scale * np.linalg.norm(K, 2) / tau)


def exact(values: Any) -> list[Fraction]:
    return [Fraction(float(v)) for v in np.ravel(values)]


def exact_residual(G: list[list[Fraction]], answer: CertifiedSolve, y: np.ndarray, tau: float) -> list[Fraction]:
    b, t = exact(answer.b), Fraction(tau)
    return [
        v - sum(g * c for g, c in zip(row, b, strict=True)) - t * own
        for v, row, own in zip(exact(y), G, b, strict=True)
    ]


def holds(bound: float, vector: list[Fraction]) -> bool:
    """|vector|_2 <= bound, in exact arithmetic."""
    return bound == np.inf or sum(v * v for v in vector) <= Fraction(bound) ** 2


def solve_exactly(G: list[list[Fraction]], tau: float, y: np.ndarray) -> list[Fraction]:
    """(G + tau I)^-1 y by elimination; the matrix is positive definite, so no pivot is 0."""
    n, t = len(y), Fraction(tau)
    rows = [
        [*(g + (t if i == j else 0) for j, g in enumerate(row)), v]
        for i, (row, v) in enumerate(zip(G, exact(y), strict=True))
    ]
    for i in range(n):
        for k in range(i + 1, n):
            ratio = rows[k][i] / rows[i][i]
            rows[k] = [a - ratio * b for a, b in zip(rows[k], rows[i], strict=True)]
    a = [Fraction(0)] * n
    for i in reversed(range(n)):
        a[i] = (rows[i][n] - sum(rows[i][j] * a[j] for j in range(i + 1, n))) / rows[i][i]
    return a


@st.composite
def systems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float, int]:
    """K = B B' of any rank and scale: exact, rounded (then perhaps slightly indefinite), or 0; y; tau; landmarks."""
    n = draw(st.integers(1, 6))
    rank = draw(st.integers(0, n))
    entries = st.integers(-64, 64).map(lambda v: v / 16)
    B = np.array(draw(st.lists(entries, min_size=n * rank, max_size=n * rank))).reshape(n, rank)
    if draw(st.booleans()):
        B = B * np.pi * 2.0 ** draw(st.integers(-30, 30))  # rounded from here on
    K = B @ B.T
    K = (K + K.T) / 2
    y = np.array(draw(st.lists(entries, min_size=n, max_size=n))) * 10.0 ** draw(st.sampled_from([0, 0, 3, -170, 160]))
    tau = 2.0 ** draw(st.integers(-40, 6))
    return K, y, tau, draw(st.integers(0, n))


ETAS = st.sampled_from([0.0, 1e-300, 1e-14, 1e-8, 1e-2, 10.0])
SOLVERS = st.sampled_from(["paper", "cg", "cholesky"])


@settings(max_examples=300, deadline=None)
@given(system=systems(), eta=ETAS, budget=st.integers(0, 12), solver=SOLVERS)
def test_no_certificate_and_no_bound_is_ever_false(system: Any, eta: float, budget: int, solver: Any) -> None:
    K, y, tau, s = system
    if solver == "paper":
        answer = solve_sketched(K, y, tau, np.eye(len(y))[:, :s], eta=eta, budget=budget)
    else:
        answer = solve_certified(K, y, tau, eta=eta, budget=budget, landmarks=s, solver=solver)
    G = [exact(row) for row in K]
    r = exact_residual(G, answer, y, tau)
    assert holds(answer.residual_norm, r)
    assert answer.status != "certified" or holds(eta, r)
    assert (answer.status == "certified") <= (answer.residual_norm <= eta)
    if answer.factor is not None:
        F = [exact(row) for row in answer.factor]
        sketched = exact_residual(
            [[sum(a * b for a, b in zip(f, g, strict=True)) for g in F] for f in F], answer, y, tau
        )
        assert holds(answer.sketched_norm, sketched)
        assert solver == "cg" or answer.status != "certified" or holds(eta, sketched)
    if tau > 2.0 * answer.negative:
        a = solve_exactly(G, tau, y)
        gap = [p - q for p, q in zip(exact(answer.b), a, strict=True)]
        assert holds(answer.coefficient_bound, gap)
        fit_gap = [sum(g * v for g, v in zip(row, gap, strict=True)) for row in G]
        assert holds(answer.fit_bound, fit_gap)
        assert holds(answer.paper_fit_bound, fit_gap)
        assert all(holds(answer.prediction_bound(K[i, i]), [fit_gap[i]]) for i in range(len(y)))  # k* = K[i]


@settings(max_examples=100, deadline=None)
@given(system=systems(), solver=st.sampled_from(["cg", "cholesky"]))
def test_what_float64_can_reach_is_certified(system: Any, solver: Any) -> None:
    K, y, tau, s = system
    tau = max(tau, 1e-6 * np.abs(K).max(), 1e-30)
    reachable = 1e-13 * np.abs(y).max() * (np.linalg.norm(K) + tau) / tau
    answer = solve_certified(K, y, tau, eta=max(reachable, 1e-300), landmarks=s, solver=solver)
    assert answer.status == "certified"


def test_an_indefinite_matrix_claims_nothing() -> None:
    K = np.diag([1.0, -3.0])
    for answer in (
        solve_certified(K, [1.0, 1.0], 1.0, solver="cholesky"),
        solve_certified(K, [0.0, 1.0], 1.0, solver="cg", landmarks=0),
    ):
        assert answer.status == "uncertified"
        assert answer.coefficient_bound > 0.1


def test_the_solver_goes_by_size_and_both_agree() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 3))
    K = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    y = np.sin(X[:, 0])
    large, small = solve_certified(K, y, 0.1), solve_certified(K[:300, :300], y[:300], 0.1)
    assert (large.solver, large.status, small.solver, small.status) == ("cg", "certified", "cholesky", "certified")
    other = solve_certified(K, y, 0.1, solver="cholesky")
    assert np.linalg.norm(large.b - other.b) <= large.coefficient_bound + other.coefficient_bound
    assert np.abs(large.fit - K @ large.b).max() < 1e-9
    assert solve_certified(K, y, 0.1, landmarks=np.arange(50), budget=1).status == "budget-exhausted"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K": np.ones((2, 3))}, "shape"),
        ({"K": np.array([[1.0, 0.5], [0.4, 1.0]])}, "symmetric"),
        ({"K": np.array([[1.0, np.nan], [np.nan, 1.0]])}, "finite"),
        ({"y": [1.0, np.inf]}, "y must be finite"),
        ({"tau": 0.0}, "tau"),
        ({"eta": -1.0}, "eta"),
        ({"budget": -1}, "budget"),
        ({"landmarks": 3}, "landmarks"),
        ({"landmarks": [2]}, "landmarks"),
        ({"landmarks": 0.5}, "landmarks"),
        ({"solver": "magic"}, "solver"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve_certified(**{"K": np.eye(2), "y": [1.0, 2.0], "tau": 1.0} | change)
