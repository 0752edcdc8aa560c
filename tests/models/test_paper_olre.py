import warnings

import numpy as np
import pytest
import reference_vectors as vectors

from kstream_worker.models.paper import PaperOLRE
from kstream_worker.models.paper.olre import required_t0

VECTORS = vectors.load("004_olre")


@pytest.mark.parametrize("case", range(len(VECTORS["expected"]["runs"])))
def test_algorithm_1_matches_the_reference(case: int) -> None:
    given, rtol = VECTORS["input"], VECTORS["rtol"]
    run, expected = given["runs"][case], VECTORS["expected"]["runs"][case]
    settings = {name: run[name] for name in ("alpha", "beta", "a", "t0")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PaperOLRE(given["sigma"], **settings)
    vectors.assert_close(required_t0(run["a"], run["beta"]), expected["t0_required_by_theorem_1"], 1e-12)
    assert [w.category for w in caught] == ([] if expected["t0_ok"] else [UserWarning])
    x, y = np.array(given["x"]), np.array(given["x_prime"])
    for step in expected["steps"]:
        before = model.update(x[model.t : step["t"]], y[model.t : step["t"]])
        vectors.assert_close(model.schedule(step["t"]), [step["eta"], step["lam"]], 1e-12)
        vectors.assert_close(before[-1], [step["f_prev_x"], step["f_prev_xp"]], rtol)
        vectors.assert_close(model.coefficients, step["theta"], rtol)
        vectors.assert_close(model.ratio(given["query"]), step["f_at_query"], rtol)
    vectors.assert_close(model.divergence(x, y), expected["pe_8c_in_sample"], rtol)
    assert model.dictionary.tolist() == np.stack((x, y), axis=1).reshape(-1, x.shape[1]).tolist()


def test_the_warning_names_the_required_t0() -> None:
    with pytest.warns(UserWarning, match="t0 >= 324"):
        PaperOLRE(1.0, beta=0.5, a=4.0, t0=100)


def test_cuts_change_nothing_and_ratio_is_pure() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    whole, cut = PaperOLRE(0.7, t0=400), PaperOLRE(0.7, t0=400)
    values = whole.update(x, y)
    parts = [cut.update(x[a:b], y[a:b]) for a, b in ((0, 1), (1, 12), (12, 30))]
    cut.ratio(x)
    assert np.array_equal(values, np.concatenate(parts))
    assert np.array_equal(whole.coefficients, cut.coefficients)


def test_wrong_input_changes_nothing() -> None:
    model = PaperOLRE(0.7, t0=400)
    model.update([0.0, 1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="finite"):
        model.update([0.0, np.inf], [1.0, 0.0])
    with pytest.raises(ValueError, match="shape"):
        model.update([[0.0]], [[1.0]])
    assert model.t == 1
