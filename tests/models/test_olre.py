import numpy as np
import pytest

from kstream_worker.models import OLRE, OlreBank


def pairs(n: int, d: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d)) + np.eye(1, d)[0]


def dense_reference(x: np.ndarray, y: np.ndarray, z: np.ndarray, *, alpha: float, warmup: int, room: int) -> np.ndarray:
    """The batch minimiser of eq. 10 in u, f = 1 + u, over the span of the same atoms, by dense algebra."""
    points = np.stack((x[:warmup], y[:warmup]), axis=1).reshape(2 * warmup, -1)
    low, center, high = np.quantile(points, (0.25, 0.5, 0.75), axis=0)

    def scaled(v: np.ndarray) -> np.ndarray:
        return np.clip((v - center) / ((high - low) / 1.349), -6.0, 6.0)

    points = scaled(points)
    near = points[:256]
    distances = np.sqrt(np.square(near[:, None] - near[None]).sum(axis=2))[np.triu_indices(len(near), 1)]
    width = 0.7 * np.median(distances[distances > 0.0])

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(np.square(a[:, None] - b[None]).sum(axis=2) / (-2.0 * width**2))

    gram = kernel(points, points)
    rest, atoms = np.ones(len(points)), []
    for _ in range(room):
        atoms.append(int(rest.argmax()))
        inner = np.linalg.cholesky(gram[np.ix_(atoms, atoms)])
        rest = 1.0 - np.square(np.linalg.solve(inner, gram[atoms])).sum(axis=0)
    p, q, phi = (np.linalg.solve(inner, kernel(points[atoms], scaled(v))).T for v in (x, y, z))
    a = np.eye(room) + (1.0 - alpha) * p.T @ p + alpha * q.T @ q
    b = (1.0 - alpha) * (q.sum(axis=0) - p.sum(axis=0))
    return 1.0 + phi @ np.linalg.solve(a, b)


def test_online_equals_the_batch_solution() -> None:
    x, y = pairs(600)
    z = np.random.default_rng(9).normal(size=(50, 2))
    model = OLRE(2, atoms=16, warmup=40)
    model.update(x, y)
    expected = dense_reference(x, y, z, alpha=0.1, warmup=40, room=16)
    assert np.abs(model.ratio(z) - expected).max() < 1e-8


@pytest.mark.parametrize("estimator", ["rls", "sgd"])
def test_the_ratio_is_learned(estimator: str) -> None:
    x, y = pairs(4000, d=1)
    model = OLRE(1, estimator=estimator)
    scores = model.update(x, y)
    z = np.linspace(-2.0, 2.5, 40)
    plain = np.exp(z - 0.5)
    assert np.square(model.ratio(z) - plain / (0.9 + 0.1 * plain)).mean() < 0.1
    # Pearson divergence of these laws at alpha .1 (by quadrature): .5037
    assert model.divergence == scores.divergence[-1]
    assert 0.35 < model.divergence < 0.6
    assert scores.state.tolist() == [0] * 200 + [1] * 3800
    assert np.isnan(scores.log_ratio[:200]).all()
    assert np.isfinite(scores.log_ratio[200:]).all()
    assert scores.seq.tolist() == list(range(1, 4001))
    assert not scores.transitions
    assert not scores.evidence.any()


def test_scores_are_made_before_the_pair_is_learned() -> None:
    x, y = pairs(60)
    model = OLRE(2, atoms=12, warmup=20)
    model.update(x[:50], y[:50])
    before = model.ratio(y[50:51])[0]
    assert model.update(x[50], y[50]).log_ratio[0] == pytest.approx(np.log(before), rel=1e-12)
    assert model.ratio(y[50:51])[0] != before


def test_a_single_sample_and_a_matrix_are_the_same() -> None:
    x, y = pairs(60)
    whole, single = OLRE(2, atoms=12, warmup=20), OLRE(2, atoms=12, warmup=20)
    whole.update(x, y)
    for a, b in zip(x, y, strict=True):
        single.update(a, b)
    assert whole.snapshot() == single.snapshot()
    fresh = OLRE(2, atoms=12, warmup=20)
    fresh.restore(whole.snapshot())
    assert fresh.ratio(x).tolist() == whole.ratio(x).tolist()


def test_nothing_is_known_while_warming_up() -> None:
    model = OLRE(2)
    model.update([0.0, 1.0], [1.0, 0.0])
    assert np.isnan(model.divergence)
    assert np.isnan(model.ratio([[0.0, 0.0]])).all()


def test_constant_and_repeated_samples_are_survived() -> None:
    model = OLRE(2, warmup=10)
    same = np.ones((30, 2))
    scores = model.update(same, same)
    assert np.abs(scores.log_ratio[10:]).max() < 0.1
    assert np.isfinite(model.update(same + np.array([0.0, 1e300]), same - np.array([1e300, 0.0])).log_ratio).all()


def test_low_estimates_are_clipped_and_counted() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(800, 1)), rng.normal(6.0, 1.0, size=(800, 1))
    model = OLRE(1, warmup=50)
    model.update(x, y)
    scores = model.update(x[:200], x[:200] - 0.5)
    low = np.log(1e-6)
    assert scores.clipped == int((scores.log_ratio == low).sum())
    assert scores.clipped > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": 0}, "dims"),
        ({"dims": 1, "alpha": 1.0}, "alpha"),
        ({"dims": 1, "estimator": "magic"}, "rls, sgd"),
        ({"dims": 1, "atoms": 3}, "atoms"),
        ({"dims": 1, "warmup": 5}, "warmup"),
        ({"dims": 1, "gamma": 0.0}, "gamma"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OlreBank(**settings)


def test_defaults_by_dimension() -> None:
    assert OlreBank(10).bytes_per_key > 2 * OlreBank(9).bytes_per_key
