import numpy as np
import pytest
import reference_vectors as vectors

from kstream_worker.models.paper import PaperCME

CASES = [("000_cme", i) for i in range(len(vectors.load("000_cme")["input"]["cases"]))] + [("000_cme_repeated", None)]


def kernel(a: np.ndarray, b: np.ndarray, sigma: float) -> np.ndarray:
    return np.exp(np.square(a[:, None] - b[None]).sum(axis=2) / (-2.0 * sigma**2))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_algorithm_e_matches_the_reference(name: str, case: int | None) -> None:
    content = vectors.load(name)
    given, expected, rtol = content["input"], content["expected"], content["rtol"]
    if case is not None:
        given, expected = given["cases"][case], expected["cases"][case]
    settings = {setting: given[setting] for setting in ("eta", "lam", "epsilon")}
    model = PaperCME(given["sigma_x"], given["sigma_y"], **settings)
    x, y = np.array(given["x"]), np.array(given["y"])
    norms = []
    for t in range(len(x)):
        admitted, residual, innovation = model.update(x[t : t + 1], y[t : t + 1])[0]
        assert admitted == expected["admitted"][t]
        vectors.assert_close(residual, expected["residual_norm"][t], rtol)
        vectors.assert_close(innovation, expected["innovation_squared"][t], rtol)
        norms.append(model.hs_norm)
    vectors.assert_close(norms, expected["hs_norm_after"], rtol)
    assert np.array_equal(model.dictionary[0], x[expected["dictionary_indices"]])
    query = given["query_x"]
    vectors.assert_close(model.embedding(query, given["query_y"]).T, expected["embedding_at_query"], rtol)
    weights = model.weights(query)
    vectors.assert_close(weights.T @ model.dictionary[1], expected["mean_y_at_query"], rtol)
    if case is not None:
        total = weights.sum(axis=0)
        vectors.assert_close(total, expected["coefficient_sum_at_query"], rtol)
        normalised = weights.T @ model.dictionary[1] / total[:, None]
        vectors.assert_close(normalised, expected["mean_y_normalised_at_query"], rtol)
        direct = kernel(np.array(query), model.dictionary[0], given["sigma_x"]) @ model.coefficients().T
        vectors.assert_close(direct, weights.T, 1e-6)


def test_it_is_the_algorithm_in_coefficients() -> None:
    """Equations 13, 16 and 162 by dense matrices, the residual by the trace of the operator's own Gram matrices."""
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-2.0, 2.0, size=(60, 2)), rng.uniform(-1.0, 1.0, size=(60, 2))
    eta, lam, epsilon, sx, sy = 0.3, 0.02, 0.06, 0.8, 0.6
    model = PaperCME(sx, sy, eta=eta, lam=lam, epsilon=epsilon)
    answers = model.update(x, y)
    kept, w = [0], np.array([[eta]])
    for t in range(1, 60):
        wider = [*kept, t]
        gx, gy = kernel(x[wider], x[wider], sx), kernel(y[wider], y[wider], sy)
        grown = np.zeros((len(wider), len(wider)))
        grown[:-1, :-1] = (1.0 - lam * eta) * w
        grown[:-1, -1] = -eta * w @ gx[:-1, -1]
        grown[-1, -1] = eta
        projected = np.linalg.solve(gy[:-1, :-1], gy[:-1]) @ grown @ np.linalg.solve(gx[:-1, :-1], gx[:-1]).T
        lost = grown.copy()
        lost[:-1, :-1] -= projected
        norm = np.sqrt(np.trace(lost.T @ gy @ lost @ gx))
        assert answers[t, 1] == pytest.approx(norm, abs=3e-6)
        kept, w = (wider, grown) if norm > epsilon else (kept, projected)
    assert np.array_equal(model.dictionary[0], x[kept])
    assert 10 < len(kept) < 60
    probe = rng.uniform(-2.0, 2.0, size=(5, 2)), rng.uniform(-1.0, 1.0, size=(5, 2))
    expected = kernel(probe[0], x[kept], sx) @ w.T @ kernel(y[kept], probe[1], sy)
    assert np.abs(model.embedding(*probe) - expected).max() < 1e-7


def test_the_mean_of_iterates_is_kept_when_asked_for() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(80, 1))
    y = np.sin(x)
    model = PaperCME(0.7, 0.7, epsilon=0.02)
    model.update(x[:40], y[:40])
    model.start_averaging()
    total = np.zeros((3, 3))
    probe = [[-1.0], [0.0], [1.0]]
    for t in range(40, 80):
        model.update(x[t : t + 1], y[t : t + 1])
        total += model.embedding(probe, probe)
    assert np.abs(model.embedding(probe, probe, averaged=True) - total / 40).max() < 1e-12


def test_wrong_input_is_refused_and_changes_nothing() -> None:
    model = PaperCME(0.7, 0.7, epsilon=0.1)
    model.update([[0.0], [1.0]], [[1.0], [0.0]])
    for x, y, message in (
        ([[np.nan]], [[0.0]], "finite"),
        ([[0.0], [1.0]], [[0.0]], "2 samples"),
        ([[0.0, 1.0]], [[0.0]], "features"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(x, y)
    assert model.t == 2
    with pytest.raises(ValueError, match="eta"):
        PaperCME(0.7, 0.7, eta=0.0, epsilon=0.1)
