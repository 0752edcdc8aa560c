from fractions import Fraction
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.config.ridge import RidgeConfig
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.models import Ridge, RidgeKind, RidgeModel
from kstream_worker.models.contract import Shape
from kstream_worker.models.nystrom import packed_size

DX, DY, WINDOW = 3, 2, 16


def pairs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, DX)) * [1.0, 20.0, 0.1]
    y = np.stack((np.sin(x[:, 0]) + x[:, 1] / 20.0, 100.0 * x[:, 2]), axis=1)
    return x, y + 0.1 * rng.normal(size=y.shape)


def make(seed: int = 0, **changes: Any) -> RidgeModel:
    options = {"window": WINDOW, "tau": 0.1} | changes
    return RidgeModel([f"x{i}" for i in range(DX)], [f"y{i}" for i in range(DY)], seed=seed, **options)


def feed(model: RidgeModel, slots: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """float64[n, columns and scores]."""
    answers = model.update(np.broadcast_to(slots, len(y)).astype(np.int64), x, y, np.zeros(len(y), dtype=np.int64))
    return np.concatenate((answers.values, answers.scores), axis=1)


def unpacked(packed: np.ndarray, m: int) -> np.ndarray:
    lower = np.zeros((m, m))
    lower.T[np.triu_indices(m)] = packed
    return lower + np.tril(lower, -1).T


class Window:
    """What lay in a key's row, read by plain numpy."""

    def __init__(self, model: RidgeModel, slot: int) -> None:
        plan, row = model._plan, model._slots.floats[slot].copy()
        m = self.room = plan.room
        self.tau = row[plan.at_tau]
        self.gain = row[plan.at_gain]
        self.K = unpacked(row[plan.at_kernel : plan.at_kernel + packed_size(m)], m)
        self.inverse = unpacked(row[plan.at_inverse : plan.at_inverse + packed_size(m)], m)
        self.x = row[plan.at_x : plan.at_y].reshape(plan.dx, m).T
        self.y = row[plan.at_y : plan.at_b].reshape(plan.dy, m)
        self.b = row[plan.at_b : plan.at_kernel].reshape(plan.dy, m)
        self.norms = row[plan.at_norms : plan.at_norms + plan.dy]
        self.scale = row[plan.at_y_scale : plan.at_y_scale + plan.dy]
        self.ints = model._slots.ints[slot].copy()


def dense(x: np.ndarray, y: np.ndarray, new: np.ndarray, tau: float, gain: float) -> tuple[np.ndarray, np.ndarray]:
    """Prediction and novelty at `new` after a window, by dense algebra, with scales of the first `WINDOW` pairs."""
    last = len(x) - WINDOW
    scaled, units = [], []
    for v in (x, y):
        low, center, high = np.quantile(v[:WINDOW], (0.25, 0.5, 0.75), axis=0)
        units.append((center, (high - low) / 1.349))
        scaled.append(np.clip((v[last:] - center) / units[-1][1], -6.0, 6.0))
    point = np.clip((new - units[0][0]) / units[0][1], -6.0, 6.0)
    K = np.exp(gain * np.square(scaled[0][:, None] - scaled[0]).sum(axis=2))
    k = np.exp(gain * np.square(scaled[0] - point).sum(axis=1))
    solved = np.linalg.solve(K + tau * np.eye(WINDOW), np.column_stack((scaled[1], k)))
    return units[1][0] + units[1][1] * (k @ solved[:, :DY]), 1.0 - k @ solved[:, DY]


def test_predictions_are_those_of_the_dense_solution_of_the_window() -> None:
    x, y = pairs(300)
    model = make(tau=None)
    slot = model.allocate(b"key")
    got = feed(model, slot, x, y)
    names = [column.name for column in model.columns]
    assert np.isnan(got[:WINDOW]).all()
    assert np.isfinite(got[WINDOW:]).all()
    window = Window(model, slot)
    for t in (WINDOW, WINDOW + 1, 40, 150, 299):
        predicted, novelty = dense(x[:t], y[:t], x[t], window.tau, window.gain)
        columns = [names.index(f"prediction.y{o}") for o in range(DY)]
        np.testing.assert_allclose(got[t, columns], predicted, rtol=0.0, atol=1e-5)
        np.testing.assert_allclose(got[t, [c + 1 for c in columns]], y[t] - predicted, rtol=0.0, atol=1e-5)
        assert got[t, names.index("novelty")] == pytest.approx(novelty, abs=1e-9)
        score = (y[t] - predicted) / window.scale / np.sqrt(novelty + window.tau)
        np.testing.assert_allclose(got[t, len(names) : -1 : 2], score, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got[t, len(names) + 1 : -1 : 2], -score, rtol=1e-6, atol=1e-6)
        assert got[t, -1] == pytest.approx(np.sqrt(np.square(score).mean()), rel=1e-6)


def test_the_ridge_is_the_best_of_the_leave_one_out_errors() -> None:
    x, y = pairs(48, seed=3)
    model = make(tau=None, window=48)
    slot = model.allocate(b"key")
    feed(model, slot, x, y)
    window = Window(model, slot)
    distances = np.square(window.x[:, None] - window.x).sum(axis=2)
    median = np.median(np.sqrt(distances[np.triu_indices(48, 1)]))
    errors = {}
    for width in (4.0, 2.0, 1.0, 0.5):
        for tau in (1.0, 0.1, 0.01, 0.001):
            gain = -0.5 / (width * median) ** 2
            K = np.exp(gain * distances)
            left = 0.0
            for i in range(48):
                rest = np.arange(48) != i
                inner = np.linalg.solve(K[np.ix_(rest, rest)] + tau * np.eye(47), window.y[:, rest].T)
                left += np.square(window.y[:, i] - K[i, rest] @ inner).sum()
            errors[gain, tau] = left
    best = min(errors, key=lambda setting: errors[setting])
    assert (window.gain, window.tau) == pytest.approx(best)


EXTREMES = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, 1e-9, 1e9, -1e9, 1e300, -1e300])
NUMBERS = st.one_of(EXTREMES, st.floats(-4.0, 4.0, width=16))


@settings(max_examples=40, deadline=None)
@given(
    data=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=20, max_size=40),
    tau=st.sampled_from([None, 1.0, 1e-3, 1e-8, 1e-13, 1e-17, 1e-200]),
    tolerance=st.sampled_from([0.0, 1e-16, 1e-14, 1e-10, 1e-6, 1.0]),
)
def test_no_certificate_of_a_window_is_ever_false(
    data: list[tuple[float, float]], tau: float | None, tolerance: float
) -> None:
    model = RidgeModel(["x"], ["y"], window=8, tau=tau, tolerance=tolerance)
    slot = model.allocate(b"key")
    for x, y in data:
        values = feed(model, slot, np.array([[x]]), np.array([[y]]))[0]
        window = Window(model, slot)
        if window.ints[1] == 0:  # warms up
            continue
        K = [[Fraction(v) for v in row] for row in window.K]
        b, target, ridge = [Fraction(v) for v in window.b[0]], window.y[0], Fraction(float(window.tau))
        r = [
            Fraction(t) - sum(k * c for k, c in zip(row, b, strict=True)) - ridge * own
            for t, row, own in zip(target, K, b, strict=True)
        ]
        square = sum(v * v for v in r)
        assert square <= Fraction(float(window.norms[0])) ** 2
        if window.ints[4] == 0:
            assert square <= Fraction(tolerance) ** 2
        assert not np.isinf(values).any()


def exact_solution(K: np.ndarray, tau: float, y: np.ndarray) -> list[Fraction]:
    n = len(y)
    rows = [
        [*(Fraction(K[i, j]) + (Fraction(tau) if i == j else 0) for j in range(n)), Fraction(y[i])] for i in range(n)
    ]
    for i in range(n):
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k in range(n):
            if k != i:
                rows[k] = [a - rows[k][i] * c for a, c in zip(rows[k], rows[i], strict=True)]
    return [row[n] for row in rows]


@pytest.mark.parametrize(("tau", "offset"), [(1.0, 0.0), (1e-2, 0.0), (1e-2, 1e9), (1e-4, -1e12), (1e-7, 0.0)])
def test_the_published_bounds_hold_against_the_exact_solution(tau: float, offset: float) -> None:
    model = RidgeModel(["x"], ["y"], window=8, tau=tau)
    slot = model.allocate(b"key")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 1))
    y = offset + np.sin(x) + 0.3 * rng.normal(size=x.shape)
    names = [column.name for column in model.columns]
    feed(model, slot, x[:8], y[:8])
    center = Fraction(float(model.slots.floats[slot, model._plan.at_y_center]))
    for t in range(8, 40):
        window = Window(model, slot)
        a = exact_solution(window.K, float(window.tau), window.y[0])
        gap = [Fraction(v) - e for v, e in zip(window.b[0], a, strict=True)]
        fit = [sum(Fraction(k) * g for k, g in zip(row, gap, strict=True)) for row in window.K]
        got = dict(zip(names, feed(model, slot, x[t : t + 1], y[t : t + 1])[0], strict=False))
        scale = Fraction(float(window.scale[0]))
        assert sum(g * g for g in gap) * scale**2 <= Fraction(got["solve_coefficient_bound.y"]) ** 2
        assert sum(v * v for v in fit) * scale**2 <= Fraction(got["solve_fit_bound.y"]) ** 2
        new = Window(model, slot)
        own = (t - 8) % 8  # the slot of the new pair, whose kernel values lie there but for its own with the former one
        k_star = [Fraction(v) for v in new.K[own]]
        k_star[own] = Fraction(float(np.exp(new.gain * (window.x[own, 0] - new.x[own, 0]) ** 2)))
        off = abs(sum(v * g for v, g in zip(k_star, gap, strict=True))) * scale
        assert off <= Fraction(got["solve_prediction_bound.y"])
        exact = center + scale * sum(v * e for v, e in zip(k_star, a, strict=True))
        assert abs(Fraction(got["prediction.y"]) - exact) <= Fraction(got["solve_prediction_bound.y"])


def test_three_statuses() -> None:
    x, y = pairs(60)
    flat = np.ones((60, DX))
    for inputs, options, expected in (
        (x, {}, 0),
        (flat, {"tau": 1e-17}, 1),  # 1 + 1e-17 = 1: the kernel's matrix of ones is singular in float64
        (x, {"tolerance": 0.0}, 2),
    ):
        model = make(**options)
        got = feed(model, model.allocate(b"key"), inputs, y)
        assert set(got[WINDOW:, 0]) == {expected}
    assert make().columns[0].texts == ("certified", "uncertified", "budget-exhausted")


@pytest.mark.parametrize("tau", [1e-17, 1e-300])
def test_a_system_without_a_factor_keeps_its_ridge_and_gives_no_scores(tau: float) -> None:
    _, y = pairs(60)
    model = make(tau=tau)
    slot = model.allocate(b"key")
    slots, times = np.full(60, slot), np.zeros(60, dtype=np.int64)
    answers = model.update(slots, np.ones((60, DX)), y, times)
    assert set(answers.values[WINDOW:, 1]) == {tau}
    assert np.isnan(answers.scores).all()
    assert Window(model, slot).gain < 0.0


def test_a_hundred_turns_stay_certified_without_a_new_factorisation() -> None:
    x, y = pairs(100 * WINDOW)
    model = make(tau=0.01)
    slot = model.allocate(b"key")
    got = feed(model, slot, x, y)
    window = Window(model, slot)
    assert (got[WINDOW:, 0] == 0.0).all()
    assert window.ints[9] == 1
    assert np.abs(window.inverse @ (window.K + 0.01 * np.eye(WINDOW)) - np.eye(WINDOW)).max() < 1e-9


def test_a_spoiled_inverse_is_repaired() -> None:
    x, y = pairs(4 * WINDOW)
    model = make()
    slot = model.allocate(b"key")
    feed(model, slot, x[: 2 * WINDOW], y[: 2 * WINDOW])
    plan, row = model._plan, model._slots.floats[slot]
    for spoiled, factored in ((np.nan, 2), (-1.0, 3)):
        row[plan.at_inverse : plan.at_inverse + packed_size(WINDOW)] = spoiled
        row[plan.at_b : plan.at_kernel] = np.nan
        feed(model, slot, x[2 * WINDOW : 3 * WINDOW], y[2 * WINDOW : 3 * WINDOW])
        window = Window(model, slot)
        assert (window.ints[4], window.ints[9]) == (0, factored)
        assert np.abs(window.b - np.linalg.solve(window.K + 0.1 * np.eye(WINDOW), window.y.T).T).max() < 1e-6


def test_a_key_that_outgrew_its_scales_warms_up_again() -> None:
    x, y = pairs(8 * WINDOW)
    model = make()
    slot = model.allocate(b"key")
    feed(model, slot, x[: 2 * WINDOW] * 1e-3, y[: 2 * WINDOW])
    got = feed(model, slot, x[2 * WINDOW :], y[2 * WINDOW :])
    known = np.isfinite(got[:, 0])
    assert known[:WINDOW].all()
    assert not known[WINDOW : 2 * WINDOW].any()
    assert known[2 * WINDOW :].all()
    outlier = feed(model, slot, x[:1] * 1e6, y[:1] * 1e6)
    assert np.isfinite(outlier).all()
    assert np.isfinite(feed(model, slot, x[: 2 * WINDOW], y[: 2 * WINDOW])).all()


def test_what_drives_the_misfit() -> None:
    x, y = pairs(200)
    model = make()
    slot = model.allocate(b"key")
    assert model.drivers(slot) == ()
    feed(model, slot, x[:150], y[:150])
    y[150:, 1] += 30.0
    feed(model, slot, x[150:], y[150:])
    names, weights = zip(*model.drivers(slot), strict=True)
    assert names == ("y1", "y0")
    assert sum(weights) == pytest.approx(1.0)
    assert weights[0] > 0.9


def test_magnitudes_of_more_outputs_are_watched() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1)), rng.normal(size=(40, 5))
    model = RidgeModel(["x"], [f"y{i}" for i in range(5)], window=8)
    got = feed(model, model.allocate(b"key"), x, y)
    assert model.watched == tuple(f"error.y{i}" for i in range(5))
    assert (got[8:, -5:] > 0.0).all()


def test_many_outputs_are_watched_together() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1)), rng.normal(size=(40, 9))
    model = RidgeModel(["x"], [f"y{i}" for i in range(9)], window=8)
    got = feed(model, model.allocate(b"key"), x, y)
    assert model.watched == ("error",)
    assert (got[8:, -1] > 0.0).all()
    assert len(model.drivers(0)) == 8


@settings(max_examples=15, deadline=None)
@given(cuts=st.sets(st.integers(0, 100), max_size=8), batch=st.integers(1, 40), order=st.integers(0, 1000))
def test_neither_cuts_nor_other_keys_change_a_bit(cuts: set[int], batch: int, order: int) -> None:
    x, y = pairs(100)
    plain, cut, shared = make(), make(), make()
    expected = feed(plain, plain.allocate(b"key"), x, y)
    slot = cut.allocate(b"key")
    parts = [feed(cut, slot, x[a:b], y[a:b]) for a, b in pairwise([0, *sorted(cuts), 100])]
    assert np.concatenate(parts).tobytes() == expected.tobytes()
    assert cut.snapshot(slot) == plain.snapshot(0)
    slots = np.array([shared.allocate(name) for name in (b"other", b"key")])
    owner = np.random.default_rng(order).permutation(np.repeat([0, 1], 100))
    other = pairs(100, seed=5)
    inputs, outputs = np.empty((200, DX)), np.empty((200, DY))
    for key, (a, b) in enumerate((other, (x, y))):
        inputs[owner == key], outputs[owner == key] = a, b
    mixed = [
        feed(shared, slots[owner[i : i + batch]], inputs[i : i + batch], outputs[i : i + batch])
        for i in range(0, 200, batch)
    ]
    assert np.concatenate(mixed)[owner == 1].tobytes() == expected.tobytes()
    assert shared.snapshot(slots[1]) == plain.snapshot(0)


@pytest.mark.parametrize("at", [0, 5, WINDOW, 50])
def test_a_snapshot_continues_in_a_fresh_bank(at: int) -> None:
    x, y = pairs(90)
    first, second = make(), make()
    slot = first.allocate(b"key")
    feed(first, slot, x[:at], y[:at])
    second.allocate(b"else")
    place = second.allocate(b"key")
    second.restore(place, first.snapshot(slot))
    assert feed(first, slot, x[at:], y[at:]).tobytes() == feed(second, place, x[at:], y[at:]).tobytes()
    assert first.snapshot(slot) == second.snapshot(place)
    for other in (make(window=20), make(tolerance=1e-5), make(tau=0.2), make(seed=1)):
        with pytest.raises(ValueError, match="configuration"):
            other.restore(other.allocate(b"key"), first.snapshot(slot))


def test_what_is_not_finite_or_does_not_fit_changes_nothing() -> None:
    x, y = pairs(40)
    model = make()
    slot = model.allocate(b"key")
    feed(model, slot, x[:30], y[:30])
    before = model.snapshot(slot)
    model.drivers(slot)
    broken = x[30:].copy()
    broken[3, 1] = np.nan
    for inputs, outputs, message in (
        (broken, y[30:], r"x\[3, 1\]"),
        (x[30:], y[30:] * np.inf, r"y\[0, 0\]"),
        (x[30:, :2], y[30:], "x must have the shape"),
        (x[30:], y[30:, :1], "y must have the shape"),
        (None, y[30:], "x is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(np.full(10, slot), inputs, outputs, np.zeros(10, dtype=np.int64))
        assert model.snapshot(slot) == before


def test_memory_is_as_stated() -> None:
    sizes = {window: RidgeModel(["x"], ["y"], window=window).bytes_per_key for window in (64, 128, 200)}
    for window, size in sizes.items():
        assert 8 * window**2 < size < 8 * window**2 + 60 * window
    model = make()
    kept = model.bytes_per_key
    slots = [model.allocate(b"%d" % i) for i in range(40)]
    assert model.bytes_per_key == kept
    assert model.nbytes >= 40 * kept
    model.free(slots[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 4}, "window"),
        ({"window": 1e3}, "window"),
        ({"tau": 0.0}, "tau"),
        ({"tau": "big"}, "tau"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": None}, "tolerance"),
        ({"lambda": 1.0}, "lambda"),
    ],
)
def test_options_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    shape = Shape(("x",), ("y",), 0)
    kind = RidgeKind()
    assert kind.build(shape, {}).fingerprint == kind.build(shape, {"window": 128, "tau": None}).fingerprint
    assert (kind.sides, kind.same_space, kind.missing) == ("pair", False, False)
    with pytest.raises(ValueError, match=message):
        kind.build(shape, change)


def test_the_configured_defaults_are_the_model_s() -> None:
    shape, kind = Shape(("x",), ("y",), 0), RidgeKind()
    options = msgspec.structs.asdict(RidgeConfig())
    assert kind.build(shape, options).fingerprint == kind.build(shape, {}).fingerprint


def test_sides_are_named() -> None:
    with pytest.raises(ValueError, match="at least one"):
        RidgeModel([], ["y"])


def test_the_single_key_class() -> None:
    x, y = pairs(60)
    model, again = Ridge(DX, DY, window=16), Ridge(DX, DY, window=16)
    answers = model.update(x, y)
    assert np.isfinite(model.column(answers, "solve_prediction_bound.y1")[16:]).all()
    again.restore(model.snapshot())
    assert again.update(x[0], y[0]).values.tobytes() == model.update(x[:1], y[:1]).values.tobytes()
    with pytest.raises(KeyError, match=r"prediction\.y0"):
        model.column(answers, "prediction")


def test_another_relation_raises_an_alarm_and_the_same_one_does_not() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2400, 2))
    y = x[:, :1] + 0.2 * rng.normal(size=(2400, 1))
    y[2000:] += 0.5 * x[2000:, 1:]  # neither the inputs nor the outputs' spread tell of it at once
    scores = Ridge(2, 1, window=64).update(x, y).scores[64:]
    bank = RankBank(3, arl=1e4, alternative="greater", seed=1)
    n = len(scores)
    answer = bank.update(np.full(n, bank.allocate(b"key")), None, scores, np.arange(n))
    raised = [64 + t.seq - 2000 for t in answer.transitions if t.kind == "raised"]
    assert raised
    assert 0 < raised[0] < 100
