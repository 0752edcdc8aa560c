import numpy as np
import pytest
from numpy.typing import NDArray

from kstream_worker.models import spectrum
from kstream_worker.numerics.jit import jit

ROOM = 24
MODES = 3


@jit
def compute(a: np.ndarray, w: spectrum.Workspace, values: np.ndarray, vectors: np.ndarray) -> int:
    n = len(a)
    for i in range(n):
        for j in range(n):
            w.squares[0, i, j] = a[i, j]
    return spectrum.leading_modes(n, MODES, w, values, vectors, ROOM)


def modes_of(a: NDArray[np.float64]) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    values, vectors = np.zeros(2 * MODES), np.zeros(2 * MODES * ROOM)
    found = compute(np.ascontiguousarray(a, dtype=np.float64), spectrum.make_workspace(ROOM), values, vectors)
    parts = vectors.reshape(MODES, 2, ROOM)[:found]
    return (values[0::2] + 1j * values[1::2])[:found], (parts[:, 0] + 1j * parts[:, 1])[:, : len(a)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 24])
def test_leading_modes_are_those_of_lapack(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(10):
        a = rng.normal(size=(n, n))
        values, vectors = modes_of(a)
        expected = np.linalg.eigvals(a)
        expected = expected[expected.imag >= 0.0]
        expected = expected[np.argsort(-np.abs(expected))][:MODES]
        assert np.abs(values - expected).max() < 1e-10 * np.linalg.norm(a)
        assert np.abs(a @ vectors.T - values * vectors.T).max() < 1e-10 * np.linalg.norm(a)
        assert np.abs(np.linalg.norm(vectors, axis=1) - 1.0).max() < 1e-12


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        (np.zeros((5, 5)), [0.0, 0.0, 0.0]),
        (np.eye(6), [1.0, 1.0, 1.0]),
        (np.triu(np.ones((4, 4))), [1.0, 1.0, 1.0]),  # one vector alone
        (np.roll(np.eye(8), 1, axis=0), [1.0, 1.0, 1.0]),  # all on the unit circle
        (1e-200 * np.diag([3.0, 2.0, 1.0]), [3e-200, 2e-200, 1e-200]),
        (np.diag([2.0, -3.0, 1.0, 0.0]), [3.0, 2.0, 1.0]),
        (np.diag(np.ones(23), 1), [0.0, 0.0, 0.0]),  # one chain of zero pivots
        (1e-80 * np.diag(np.ones(23), 1), [0.0, 0.0, 0.0]),
    ],
)
def test_hard_cases_end_with_finite_numbers(a: NDArray[np.float64], expected: list[float]) -> None:
    values, vectors = modes_of(a)
    assert np.allclose(np.abs(values), expected, rtol=1e-6, atol=1e-12 * np.abs(a).max())
    assert np.isfinite(vectors).all()


def test_a_double_eigenvalue_gets_two_vectors() -> None:
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(6, 6))
    a = basis @ np.diag([2.0, 2.0, 1.0, 0.5, 0.2, 0.1]) @ np.linalg.inv(basis)
    _, vectors = modes_of(a)
    assert np.linalg.svd(vectors[:2])[1][1] > 0.01


def test_equal_input_gives_equal_bits_whatever_was_computed_before() -> None:
    rng = np.random.default_rng(1)
    a, other = rng.normal(size=(9, 9)), rng.normal(size=(20, 20))
    first = modes_of(a)
    modes_of(other)
    assert all(np.array_equal(left, right) for left, right in zip(first, modes_of(a), strict=True))
