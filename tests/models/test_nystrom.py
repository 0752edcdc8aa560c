import numpy as np
import pytest
import reference_vectors as vectors
from numpy.typing import NDArray

from kstream_worker.models import nystrom, scaling
from kstream_worker.numerics.jit import jit

VECTORS = vectors.load("004_nystrom_sgd_rls")
GAMMAS = {"rls_gamma1_ridge1": 1.0, "rls_gamma0.995_ridge1": 0.995}
# eta, lambda (None: 1 / (t + 100))
SGD = {"sgd_eta.5_lam1/(t+100)": (0.5, None), "sgd_eta.3_lam.05": (0.3, 0.05), "sgd_eta.1_lam.02": (0.1, 0.02)}


@jit
def factor(atoms, m, d, gain, tolerance, inverse):
    return nystrom.factor(atoms, m, m, d, gain, tolerance, inverse, np.empty(d), np.empty(m), np.empty(m, np.int64))


@jit
def features(atoms, m, d, gain, inverse, z, phi):
    k = np.empty(m)
    powers = np.empty(m, np.int64)
    for i in range(z.shape[0]):
        nystrom.gaussian(z[i], atoms, m, m, d, gain, k, powers)
        nystrom.whiten(inverse, m, k, phi[i])


@jit
def whiten_two(inverse, m, k, phi):
    nystrom.whiten_pair(inverse, m, k[0], k[1], phi[0], phi[1])


@jit
def run_rls(m, w, cov, p, q, alpha, gamma, ridge, first, weights):
    gp = np.empty(m)
    gq = np.empty(m)
    for t in range(p.shape[0]):
        nystrom.rls_step(cov, m, w, p[t], q[t], alpha, gamma, ridge, first + t, gp, gq)
        weights[t] = w


@jit
def reset_rls(m, ridge, cov, w):
    nystrom.rls_reset(m, ridge, cov, w)


@jit
def run_sgd(m, w, mean, p, q, alpha, eta, decay, weights, means):
    for t in range(p.shape[0]):
        rate = nystrom.slow_decay(t + 1) if decay < 0.0 else decay
        nystrom.sgd_step(w, m, p[t], q[t], alpha, eta, rate)
        nystrom.average_step(mean, w, m, t + 1)
        weights[t] = w
        means[t] = mean


@jit
def choose(sample, n, d, gain, most, tolerance, atoms, inverse, chosen):
    return nystrom.choose_atoms(
        sample, n, d, gain, most, tolerance, atoms, most, inverse,
        np.empty(n * most), np.empty(n), np.empty(n, np.int64), chosen,
    )  # fmt: skip


@jit
def dual(inverse, m, w, c):
    nystrom.dual_weights(inverse, m, w, c)


@jit
def fourth(k):
    nystrom.fourth_power(k, len(k), k)


@jit
def dot(a, b, n):
    return nystrom.dot(a, b, n)


@jit
def order_statistics(values, level):
    return scaling.quantile(values, len(values), level)


@jit
def center_and_scale(values):
    return scaling.center_and_scale(values, len(values))


@jit
def median_distance(sample, n, d):
    return scaling.median_distance(sample, n, d, np.empty(n * n))


def by_feature(atoms: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(atoms.T).ravel()


def lower(packed: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    matrix = np.zeros((m, m))
    matrix.T[np.triu_indices(m)] = packed[: m * (m + 1) // 2]
    return matrix


def kernel(a: NDArray[np.float64], b: NDArray[np.float64], gain: float) -> NDArray[np.float64]:
    return np.exp(gain * np.square(a[:, None] - b[None]).sum(axis=2))


class Problem:
    """The reference problem: whitened features of its points."""

    def __init__(self) -> None:
        given = VECTORS["input"]
        self.alpha = given["alpha"]
        self.at = [t - 1 for t in given["at"]]
        atoms = np.array(given["atoms"])
        self.m, d = atoms.shape
        gain = -0.5 / given["sigma"] ** 2
        self.inverse = np.empty(self.m * (self.m + 1) // 2)
        assert factor(by_feature(atoms), self.m, d, gain, 1e-8, self.inverse) == self.m
        self.p, self.q, self.phi = (
            self._features(by_feature(atoms), d, gain, np.array(given[name])) for name in ("x", "x_prime", "query")
        )

    def _features(self, atoms, d, gain, z) -> NDArray[np.float64]:
        phi = np.empty((len(z), self.m))
        features(atoms, self.m, d, gain, self.inverse, z, phi)
        return phi


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


@pytest.mark.parametrize("name", SGD)
def test_sgd_matches_the_reference(name: str, problem: Problem) -> None:
    expected, (eta, decay) = VECTORS["expected"][name], SGD[name]
    n, m = problem.p.shape
    weights, means = np.empty((n, m)), np.empty((n, m))
    run_sgd(
        m, np.zeros(m), np.zeros(m), problem.p, problem.q, problem.alpha, eta,
        -1.0 if decay is None else decay, weights, means,
    )  # fmt: skip
    before = np.vstack((np.zeros(m), weights[:-1]))
    f_before = 1.0 + np.stack(((before * problem.p).sum(1), (before * problem.q).sum(1)), axis=1)
    rtol = VECTORS["rtol"]
    vectors.assert_close(1.0 + weights[problem.at] @ problem.phi.T, expected["f_at_query"], rtol)
    vectors.assert_close(1.0 + means[problem.at] @ problem.phi.T, expected["f_averaged_at_query"], rtol)
    vectors.assert_close(f_before[problem.at], expected["f_before_update_at_x_and_xp"], rtol)


def without_injection(problem: Problem, gamma: float, ridge: float = 1.0) -> NDArray[np.float64]:
    """RLS in steps whose numbers never fall on the period of the injection."""
    n, m = problem.p.shape
    weights, w, cov = np.empty((n, m)), np.empty(m), np.empty(m * (m + 1) // 2)
    reset_rls(m, ridge, cov, w)
    for t in range(n):
        run_rls(
            m, w, cov, problem.p[t : t + 1], problem.q[t : t + 1], problem.alpha, gamma, ridge, 1, weights[t : t + 1]
        )
    return weights


@pytest.mark.parametrize("name", GAMMAS)
def test_rls_matches_the_reference(name: str, problem: Problem) -> None:
    weights = without_injection(problem, GAMMAS[name])
    vectors.assert_close(1.0 + weights[problem.at] @ problem.phi.T, VECTORS["expected"][name], VECTORS["rtol"])


def test_rls_with_injection_solves_the_faded_normal_equations(problem: Problem) -> None:
    gamma, ridge, (n, m) = 0.9, 0.7, problem.p.shape
    weights, w, cov = np.empty((n, m)), np.empty(m), np.empty(m * (m + 1) // 2)
    reset_rls(m, ridge, cov, w)
    run_rls(m, w, cov, problem.p, problem.q, problem.alpha, gamma, ridge, 1, weights)
    a, b = ridge * np.eye(m), np.zeros(m)
    for t, (p, q) in enumerate(zip(problem.p, problem.q, strict=True), start=1):
        a = gamma * a + (1 - problem.alpha) * np.outer(p, p) + problem.alpha * np.outer(q, q)
        b = gamma * b + (1 - problem.alpha) * (q - p)
        if t % 8 == 0:
            j = (t // 8 - 1) % m
            a[j, j] += ridge * (1 - gamma ** (8 * m))
        vectors.assert_close(weights[t - 1], np.linalg.solve(a, b), 1e-9)
    full = lower(cov, m)
    vectors.assert_close(full + np.tril(full, -1).T, np.linalg.inv(a), 1e-9)


def test_covariance_stays_bounded_without_excitation() -> None:
    m, n, gamma = 8, 20_000, 0.995
    w, cov, weights = np.empty(m), np.empty(m * (m + 1) // 2), np.empty((n, m))
    reset_rls(m, 1.0, cov, w)
    run_rls(m, w, cov, np.zeros((n, m)), np.zeros((n, m)), 0.1, gamma, 1.0, 1, weights)
    assert np.diag(lower(cov, m)).max() <= gamma ** (-8 * m) * 1.0001


def test_alpha_zero_uses_the_reference_side_alone_in_a(problem: Problem) -> None:
    n, m = problem.p.shape
    weights, w, cov = np.empty((n, m)), np.empty(m), np.empty(m * (m + 1) // 2)
    reset_rls(m, 1.0, cov, w)
    run_rls(m, w, cov, problem.p, problem.q, 0.0, 1.0, 1.0, 1, weights)
    a = np.eye(m) + problem.p.T @ problem.p
    vectors.assert_close(w, np.linalg.solve(a, (problem.q - problem.p).sum(axis=0)), 1e-9)


def test_pair_whitening_and_single_whitening_agree_to_the_bit(problem: Problem) -> None:
    m = problem.m
    k, both, single = np.random.default_rng(1).uniform(size=(2, m)), np.empty((2, m)), np.empty((2, m))
    whiten_two(problem.inverse, m, k, both)
    dense = lower(problem.inverse, m)
    for i in range(2):
        whiten_two(problem.inverse, m, k[[i, i]], single)
        assert single[0].tolist() == single[1].tolist() == both[i].tolist()
    vectors.assert_close(both, k @ dense.T, 1e-12)


@pytest.mark.parametrize(
    ("n", "d", "width", "most"), [(200, 1, 0.5, 50), (120, 4, 2.0, 48), (30, 2, 0.3, 100), (3, 2, 1.0, 8)]
)
def test_atoms_are_the_greedy_pivots_and_whitening_is_right(n: int, d: int, width: float, most: int) -> None:
    sample = np.random.default_rng(n).normal(size=(n, d))
    gain = -0.5 / width**2
    atoms, inverse, chosen = np.zeros(d * most), np.zeros(most * (most + 1) // 2), np.zeros(most, np.int64)
    m = choose(sample.ravel(), n, d, gain, most, 1e-8, atoms, inverse, chosen)
    assert m % 4 == 0
    assert 4 <= m <= most
    linv = lower(inverse, m)
    alive = int((np.diag(linv) > 0.0).sum())
    assert m - alive < 4
    assert np.array_equal(atoms.reshape(d, most)[:, :m].T, sample[chosen[:m]])
    gram = kernel(sample, sample, gain)
    eye = linv[:alive, :alive] @ gram[np.ix_(chosen[:alive], chosen[:alive])] @ linv[:alive, :alive].T
    vectors.assert_close(eye, np.eye(alive), 1e-6)
    assert not linv[alive:].any()
    rest = np.ones(n)
    for j in range(alive):  # each atom is the point farthest from the span of those before it
        assert rest[chosen[j]] >= rest.max() - 1e-9
        phi = linv[: j + 1, : j + 1] @ gram[chosen[: j + 1]]
        rest = 1.0 - np.square(phi).sum(axis=0)
    if alive < min(n, most - most % 4):
        assert rest.max() <= 1e-6


def test_repeated_atoms_are_dropped_not_jittered() -> None:
    atoms = np.array([[0.0], [1.0], [0.0], [2.0]])
    inverse = np.empty(10)
    assert factor(by_feature(atoms), 4, 1, -0.5, 1e-8, inverse) == 3
    linv = lower(inverse, 4)
    assert not linv[2].any()
    assert not linv[:, 2].any()
    gram = kernel(atoms, atoms, -0.5)
    vectors.assert_close(linv @ gram @ linv.T, np.diag([1.0, 1.0, 0.0, 1.0]), 1e-10)


def test_half_the_width_is_the_fourth_power() -> None:
    rng = np.random.default_rng(2)
    exponents = -rng.uniform(0.0, 30.0, size=37)
    k = np.exp(exponents)
    fourth(k)
    expected = np.exp(4.0 * exponents)
    expected[expected < 1e-35] = 0.0
    assert np.allclose(k, expected, rtol=1e-14, atol=0.0)


def test_dual_weights_give_the_same_function(problem: Problem) -> None:
    rng = np.random.default_rng(4)
    w, k, c, phi = (
        rng.normal(size=problem.m),
        rng.uniform(size=(2, problem.m)),
        np.empty(problem.m),
        np.empty((2, problem.m)),
    )
    dual(problem.inverse, problem.m, w, c)
    whiten_two(problem.inverse, problem.m, k, phi)
    vectors.assert_close(k @ c, phi @ w, 1e-12)


@pytest.mark.parametrize("n", [0, 1, 4, 7, 50])
def test_dot_takes_any_length(n: int) -> None:
    a, b = np.random.default_rng(n).normal(size=(2, n))
    assert dot(a, b, n) == pytest.approx(float((a * b).sum()), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("n", [1, 2, 5, 100, 101])
def test_quantiles_are_those_of_numpy(n: int) -> None:
    values = np.random.default_rng(n).integers(-5, 6, size=n) / 4.0
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert order_statistics(values.copy(), level) == pytest.approx(np.quantile(values, level), abs=1e-14)


def test_scale_rule() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(3.0, 2.0, size=500)
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    assert center_and_scale(values.copy()) == pytest.approx((middle, (high - low) / 1.349))
    mostly_equal = np.where(np.arange(200) % 10 == 0, rng.normal(size=200), 7.0)
    low, high = np.quantile(mostly_equal, (0.05, 0.95))
    assert center_and_scale(mostly_equal.copy()) == pytest.approx((7.0, (high - low) / 3.29))
    assert center_and_scale(np.full(50, 1e6)) == (1e6, 1.0)
    center, scale = center_and_scale(np.array([-1.7e308, 1.7e308] * 10))
    assert np.isfinite([center, scale]).all()


def test_median_distance_leaves_out_repeated_points() -> None:
    points = np.array([[0.0], [0.0], [0.0], [1.0], [3.0]])
    assert median_distance(points.ravel(), 5, 1) == np.median([1, 1, 1, 3, 3, 3, 2])
    assert median_distance(np.zeros(6), 3, 2) == 1.0
