import numpy as np
import pytest
import reference_vectors as vectors

from kstream_worker.models.paper import PaperKoopman

VECTORS = vectors.load("003_koopman")
_MEASURES = ("residual_norm", "innovation_squared")


@pytest.mark.parametrize("case", range(len(VECTORS["input"]["cases"])))
def test_the_algorithm_matches_the_reference(case: int) -> None:
    given, expected, rtol = VECTORS["input"]["cases"][case], VECTORS["expected"]["cases"][case], VECTORS["rtol"]
    model = PaperKoopman(given["sigma_x"], eta=given["eta"], lam=given["lam"], epsilon=given["epsilon"])
    x, y, query = np.array(given["x"]), np.array(given["y"]), np.array(given["query_x"])
    norms = []
    for t in range(len(x)):
        (admitted, residual, innovation), *_ = model.update(x[t : t + 1], y[t : t + 1])
        assert bool(admitted) == bool(expected["admitted"][t])
        vectors.assert_close([residual, innovation], [expected[name][t] for name in _MEASURES], rtol)
        norms.append(model.hs_norm)
    vectors.assert_close(norms, expected["hs_norm_after"], rtol)
    at = expected["dictionary_indices"]
    assert np.array_equal(model.dictionary[0], x[at])
    assert np.array_equal(model.dictionary[1], y[at])
    eigenvalues = model.eigenvalues(4)
    vectors.assert_close(np.stack((eigenvalues.real, eigenvalues.imag), axis=1), expected["eigenvalues"], rtol)
    for got, wanted in zip(model.eigenfunctions(query, 4), expected["eigenfunction_at_query"], strict=True):
        scaled = got / got[wanted["largest_at"]]
        vectors.assert_close(np.stack((scaled.real, scaled.imag), axis=1), wanted["values"], rtol)
    for wanted in expected["forecasts"]:
        vectors.assert_close(model.forecast(query, wanted["steps"]), wanted["mean_y"], rtol)


def test_questions_change_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(31, 2))
    model = PaperKoopman(0.7, epsilon=0.02)
    model.update(x[:-1], x[1:])
    before = model.coefficients()
    model.forecast(x, 3)
    model.eigenfunctions(x, 2)
    assert np.array_equal(before, model.coefficients())


def test_modes_of_the_averaged_operator_differ() -> None:
    x = np.random.default_rng(0).normal(size=(61, 1))
    model = PaperKoopman(0.7, epsilon=0.02)
    model.update(x[:30], x[1:31])
    model.start_averaging()
    model.update(x[30:-1], x[31:])
    assert abs(model.eigenvalues(1)[0] - model.eigenvalues(1, averaged=True)[0]) > 1e-4
