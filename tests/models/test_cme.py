import numpy as np
import pytest

from kstream_worker.models import CmeModel, OnlineCME
from kstream_worker.models.cme import CmeKind
from kstream_worker.models.cme.layout import MOST_GROWTH
from kstream_worker.models.contract import Shape
from kstream_worker.models.nystrom import RIDGE_PERIOD


def pairs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y1 follows x with noise that grows with x, y2 is noise alone; in units far from 1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(n, 1))
    noise = rng.normal(size=(n, 2)) * [0.1, 1.0]
    y1 = np.sin(2.0 * x[:, 0]) + noise[:, 0] * np.where(x[:, 0] > 0.0, 3.0, 1.0)
    return 1e3 * x + 5e4, np.column_stack((1e-3 * y1, 7.0 + 2.0 * noise[:, 1]))


def without_limits(values: np.ndarray, y_dims: int) -> np.ndarray:
    """All that is said but lower and upper limits, which may be infinite."""
    return np.delete(values, np.s_[2 * y_dims : 4 * y_dims], axis=1)


def test_mean_and_spread_follow_the_input() -> None:
    model = OnlineCME(1, 2, forgetting=1.0)
    answers = model.update(*pairs(3000))
    sides = [f"{what}.y{j}" for what in ("mean", "sd", "lower", "upper", "covered") for j in range(2)]
    assert model.columns == (*sides, "innovation", "atoms", "norm")
    assert np.isnan(answers.values[:200]).all()
    assert np.isfinite(answers.values[200:]).all()
    x = np.array([-1.5, -0.8, 0.8, 1.5])
    mean, sd = model.predict(1e3 * x + 5e4)
    assert np.abs(1e3 * mean[:, 0] - np.sin(2.0 * x)).max() < 0.12
    assert 1e3 * sd[:, 0] == pytest.approx([0.1, 0.1, 0.3, 0.3], rel=0.35)
    assert mean[:, 1] == pytest.approx(np.full(4, 7.0), abs=0.5)
    assert sd[:, 1] == pytest.approx(np.full(4, 2.0), rel=0.25)


def test_far_from_all_inputs_the_marginal_is_predicted() -> None:
    model = OnlineCME(1, 2)
    x, y = pairs(1000)
    model.update(x, y)
    mean, sd = model.predict([[1e9]])
    assert mean[0] == pytest.approx(y[:200].mean(axis=0), abs=0.1)
    assert sd[0] == pytest.approx(y[:200].std(axis=0), rel=0.1)


def test_the_embedding_is_the_mean_of_the_kernel() -> None:
    """Against the kernel at draws from the known conditional law, with widths read off the warm-up's points."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 1))
    y = 0.8 * x + 0.6 * rng.normal(size=(4000, 1))
    model = OnlineCME(1, 1, forgetting=1.0)
    model.update(x, y)
    low, center, high = np.quantile(y[:200], (0.25, 0.5, 0.75))
    scale = (high - low) / 1.349
    points = (y[:200] - center) / scale
    width = 0.7 * np.median(np.abs(points - points.T)[np.triu_indices(200, 1)])
    draws = 0.8 * 0.5 + 0.6 * rng.normal(size=(20_000, 1))
    probe = np.array([[-1.0], [0.4], [1.2]])
    expected = np.exp(np.square((draws - probe.T) / scale) / (-2.0 * width**2)).mean(axis=0)
    assert np.abs(model.embedding([[0.5]], probe)[0] - expected).max() < 0.04


def test_scores_begin_when_learning_is_over_and_rise_when_the_dynamics_change() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 1))
    y = 0.9 * x + 0.3 * rng.normal(size=(2000, 1))
    y[1500:] = 0.9 * rng.permutation(x[1500:]) + 0.3 * rng.normal(size=(500, 1))  # y as before, but not of this x
    scores = OnlineCME(1, 1).update(x, y).scores
    assert np.isnan(scores[:600]).all()
    assert np.isfinite(scores[600:]).all()
    assert np.abs(scores[600:1500].mean(axis=0)).max() < 0.15
    assert scores[600:1500].std(axis=0) == pytest.approx([1.0, 1.0], rel=0.25)
    assert scores[1500:1600, 0].mean() > 1.0
    assert scores[1520:1600, 1].mean() > 0.35


def test_drivers_name_the_output_that_misfits() -> None:
    model = CmeModel(("u",), ("p", "q"))
    slot = model.allocate(b"k")
    x, y = pairs(1030)
    y[1000:, 1] += 30.0
    slots, times = np.full(1030, slot), np.zeros(1030, dtype=np.int64)
    model.update(slots[:150], x[:150], y[:150], times[:150])
    assert model.drivers(slot) == ()
    model.update(slots[150:], x[150:], y[150:], times[150:])
    drivers = model.drivers(slot)
    assert [name for name, _ in drivers] == ["q", "p"]
    assert drivers[0][1] > 0.9
    assert sum(weight for _, weight in drivers) == pytest.approx(1.0)


def test_online_it_is_the_same_key_in_one_slot() -> None:
    x, y = pairs(700)
    whole, single = OnlineCME(1, 2), OnlineCME(1, 2)
    whole.update(x, y)
    for a, b in zip(x, y, strict=True):
        single.update(a, b)
    assert whole.snapshot() == single.snapshot()
    fresh = OnlineCME(1, 2)
    fresh.restore(whole.snapshot())
    assert fresh.predict(x[:5])[0].tolist() == whole.predict(x[:5])[0].tolist()


def test_long_runs_on_a_nearly_singular_dictionary_stay_finite() -> None:
    rng = np.random.default_rng(0)
    model = OnlineCME(1, 1)
    model._model._plan = model._model._plan._replace(epsilon=0.0)  # all that is not in the span is admitted
    for part in range(6):
        x = np.round(rng.normal(size=(4000, 1)), 2) * (1e-3 if part % 2 else 1.0)
        y = np.where(rng.random((4000, 1)) < 0.01, 1e6 * rng.normal(size=(4000, 1)), np.sin(x))
        answers = model.update(x, y)
        known = slice(600 if part == 0 else 0, None)
        assert np.isfinite(without_limits(answers.values[known], 1)).all()
        assert np.isfinite(answers.scores[known]).all()
    assert answers.values[:, -1].max() < 100.0
    op, rows = model._model._op, model._model.slots
    assert rows.ints[0, 3] == 48
    lower = np.zeros((48, 48))
    lower[np.tril_indices(48)] = rows.floats[0, op.at_lx : op.at_ly]
    kept = np.diag(lower) > 0.0
    singular = np.linalg.svd(lower[np.ix_(kept, kept)], compute_uv=False)
    assert (singular[0] / singular[-1]) ** 2 > 1e14  # condition number of the kernel matrix


def test_constant_samples_and_extremes_are_survived() -> None:
    model = OnlineCME(2, 2, warmup=20)
    same = np.ones((100, 2))
    answers = model.update(same, same)
    assert answers.values[-1, :2] == pytest.approx([1.0, 1.0])
    wild = same * [[1e300, -1e300]]
    answers = model.update(wild, -wild)
    assert np.isfinite(without_limits(answers.values, 2)).all()
    assert not np.isnan(answers.values).any()
    assert np.isfinite(answers.scores).all()


@pytest.mark.parametrize("atoms", [8, 48])
def test_what_comes_back_after_a_long_silence_is_survived_at_the_least_forgetting(atoms: int) -> None:
    """A direction in which no pair came for many turns of the ridge."""
    least = MOST_GROWTH ** (-1.0 / (RIDGE_PERIOD * atoms))
    model = OnlineCME(2, 2, atoms=atoms, warmup=60, forgetting=least + 1e-9)
    rng = np.random.default_rng(0)
    for _ in range(3):
        z = np.concatenate((rng.normal(size=(1000, 2)), np.full((3000, 2), 0.5), rng.standard_cauchy(size=(500, 2))))
        answers = model.update(z[:-1], z[1:])
        assert np.isfinite(without_limits(answers.values[200:], 2)).all()
        assert not np.isnan(answers.values[200:]).any()
        assert np.isfinite(answers.scores[200:]).all()


def test_the_kind_builds_and_refuses() -> None:
    shape = Shape(("a",), ("b", "c"), 7)
    model = CmeKind().build(shape, {"atoms": 50, "warmup": 30, "forgetting": 0.99})
    assert model.watched == ("innovation", "drift")
    assert model.fingerprint == CmeModel(("x",), ("y", "z"), atoms=48, warmup=30, forgetting=0.99, seed=7).fingerprint
    for options, message in (
        ({"atom": 50}, "no option atom"),
        ({"atoms": 4}, "atoms is 4"),
        ({"warmup": 5}, "warmup is 5"),
        ({"forgetting": 0.0}, "forgetting is 0"),
        ({"coverage": 1.0}, r"coverage is 1\.0; it must be from 0\.5 to 0\.999"),
        ({"forgetting": 0.9}, r"forgetting is 0\.9; with 48 atoms it must be at least 0\.9764"),
        ({"atoms": 400, "forgetting": 0.99}, "with 400 atoms"),
    ):
        with pytest.raises(ValueError, match=message):
            CmeKind().build(shape, options)
    with pytest.raises(ValueError, match="each side"):
        CmeModel((), ("y",))
