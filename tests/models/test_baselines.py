import numpy as np
import pytest
import reference_vectors as vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.models.baselines import KLIEP, RULSIF
from kstream_worker.models.baselines.kernels import gaussian_matrix
from kstream_worker.models.baselines.kliep import duality_gap, mixture_proportions

RULSIF_VECTORS = vectors.load("004_rulsif")
KLIEP_VECTORS = vectors.load("004_kliep")


def dictionary(given: dict, name: str) -> np.ndarray:
    x, y = np.array(given["x"]), np.array(given["x_prime"])
    return {"xp_subset": y[given["subset_indices"]], "xp_all": y, "x_then_xp_all": np.concatenate((x, y))}[name]


@pytest.mark.parametrize("case", range(len(RULSIF_VECTORS["expected"]["cases"])))
def test_rulsif_matches_the_reference(case: int) -> None:
    given, rtol = RULSIF_VECTORS["input"], RULSIF_VECTORS["rtol"]
    setting, expected = given["cases"][case], RULSIF_VECTORS["expected"]["cases"][case]
    model = RULSIF(alpha=setting["alpha"], penalty=setting["penalty"], sigma=given["sigma"], lam=setting["lam"])
    model.fit(given["x"], given["x_prime"], dictionary(given, setting["dictionary"]))
    vectors.assert_close(model.ratio(given["query"]), expected["f_at_query"], rtol)
    if "pe_8c_in_sample" in expected:
        vectors.assert_close(model.divergence(given["x"], given["x_prime"]), expected["pe_8c_in_sample"], rtol)
    if "rtol_coefficients" in expected:
        vectors.assert_close(model.coefficients, expected["coefficients"], expected["rtol_coefficients"])
    elif (
        "coefficients" in expected
    ):  # of a kernel matrix that is singular to working precision: only the function is fixed
        kernel = gaussian_matrix(model.dictionary, model.dictionary, given["sigma"])
        vectors.assert_close(kernel @ model.coefficients, kernel @ np.array(expected["coefficients"]), rtol)


@pytest.mark.parametrize("case", range(len(KLIEP_VECTORS["expected"]["cases"])))
def test_kliep_matches_the_reference(case: int) -> None:
    given, rtol = KLIEP_VECTORS["input"], KLIEP_VECTORS["rtol"]
    setting, expected = given["cases"][case], KLIEP_VECTORS["expected"]["cases"][case]
    model = KLIEP(sigma=setting["sigma"])
    model.fit(given["x"], given["x_prime"], dictionary(given, setting["dictionary"]))
    vectors.assert_close(model.ratio(given["query"]), expected["w_at_query"], rtol)
    vectors.assert_close(model.ratio(given["x_prime"]), expected["w_at_x_prime"], rtol)
    vectors.assert_close(np.log(model.ratio(given["x_prime"])).mean(), expected["mean_log"], 1e-9)
    assert model.gap < 1e-10
    assert abs(model.ratio(given["x"]).mean() - 1.0) < 1e-9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 30))
def test_mixture_proportions_close_the_duality_gap(seed: int, n: int, m: int) -> None:
    basis = np.random.default_rng(seed).exponential(size=(n, m)) + 1e-3
    shares, gap = mixture_proportions(basis)
    assert (shares >= 0.0).all()
    assert abs(shares.sum() - 1.0) < 1e-12
    assert gap == duality_gap(basis, shares)
    assert gap < 1e-10


def test_cross_validation_finds_a_usable_ratio() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(300, 1)), rng.normal(1.0, size=(300, 1))
    z = np.linspace(-2.0, 2.5, 50)[:, None]
    plain = np.exp(z[:, 0] - 0.5)
    relative = plain / (0.9 + 0.1 * plain)
    for penalty in ("l2", "hilbert"):
        model = RULSIF(penalty=penalty, atoms=40).fit(x, y)
        assert np.square(model.ratio(z) - relative).mean() < 0.1
    model = KLIEP(atoms=40).fit(x, y)
    assert np.square(model.ratio(z) - plain).mean() < 0.1 * np.square(plain).mean()


def test_a_second_fit_validates_anew() -> None:
    rng = np.random.default_rng(4)
    first, second = (rng.normal(size=(2, 200, 1)) * by for by in (1.0, 50.0))
    for estimator in (RULSIF, KLIEP):
        twice = estimator(atoms=20).fit(*first).fit(*second)
        fresh = estimator(atoms=20).fit(*second)
        assert twice.sigma == fresh.sigma
        assert twice.coefficients.tolist() == fresh.coefficients.tolist()


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="penalty"):
        RULSIF(penalty="l1")
    with pytest.raises(ValueError, match="x holds a number that is not finite"):
        RULSIF().fit([[np.nan]], [[1.0]])
    with pytest.raises(ValueError, match="y must be a matrix"):
        KLIEP().fit([[1.0]], [1.0])
    with pytest.raises(ValueError, match="call fit first"):
        KLIEP().ratio([[1.0]])
    with pytest.raises(ValueError, match="out of reach"):
        KLIEP(sigma=1e-3).fit([[0.0], [1.0]], [[50.0], [51.0]])
