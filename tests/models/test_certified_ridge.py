from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference_vectors as vectors

from kstream_worker.models.paper import solve_sketched

VECTORS = vectors.load("001_certified_ridge")
SYSTEMS = list(zip(VECTORS["input"]["systems"], VECTORS["expected"]["systems"], strict=True))


@pytest.mark.parametrize(("given", "expected"), SYSTEMS, ids=[given["name"] for given, _ in SYSTEMS])
def test_the_paper_s_algorithm_matches_the_reference(given: dict[str, Any], expected: dict[str, Any]) -> None:
    K, y, tau = np.array(given["K"]), np.array(given["y"]), given["tau"]
    answer = solve_sketched(K, y, tau, np.eye(len(y))[:, given["landmarks"]], eta=given["eta"], budget=given["T"])
    assert answer.status in expected["status_accepted"]
    a, u = np.array(expected["exact_a"]), np.array(expected["exact_u"])
    k_star = np.array(given["k_star"])
    tiny = 1e-15 * expected["norm_y"] / tau**2  # of the expected numbers' own rounding
    assert np.linalg.norm(answer.b - a) <= answer.coefficient_bound + tiny
    assert np.linalg.norm(K @ answer.b - u) <= answer.fit_bound + tiny
    assert np.linalg.norm(answer.fit - u) <= answer.sketched_fit_bound + tiny
    assert abs(k_star @ (answer.b - a)) <= answer.prediction_bound(given["k_star_star"]) + tiny
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
            (sharp.prediction_bound(given["k_star_star"]), "prediction_tight"),
        ):
            assert got == pytest.approx(bounds[name], rel=1e-7, abs=scale * np.linalg.norm(K, 2) / tau)
