"""The bank of Koopman operators: its answers against dense arithmetic and known systems."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kstream_worker.models.cme.layout import ATOMS
from kstream_worker.models.contract import Shape
from kstream_worker.models.koopman import Koopman, KoopmanKind, KoopmanModel
from kstream_worker.models.koopman.layout import OPERATOR

Float = NDArray[np.float64]
SECOND = 1000


def oscillator(n: int, seed: int, *, modulus: float = 0.95, angle: float = 0.3, noise: float = 0.1) -> Float:
    """A damped rotation of the plane in noise: eigenvalues modulus e^(+-i angle)."""
    rng, z = np.random.default_rng(seed), np.zeros((n, 2))
    turn = modulus * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for t in range(1, n):
        z[t] = turn @ z[t - 1] + noise * rng.normal(size=2)
    return z


def run(model: KoopmanModel, z: Float, times: NDArray[np.int64] | None = None) -> tuple[int, dict[str, Float], Float]:
    slot, n = model.allocate(b"k"), len(z) - 1
    given = SECOND * np.arange(n) if times is None else times
    said = model.update(np.full(n, slot), z[:-1].copy(), z[1:].copy(), given)
    return slot, {column.name: said.values[:, i] for i, column in enumerate(model.columns)}, said.scores


@pytest.fixture(scope="module")
def learned() -> tuple[KoopmanModel, int, dict[str, Float], Float, Float]:
    z = oscillator(4000, 0)
    model = KoopmanModel(("a", "b"))
    return model, *run(model, z), z


def test_eigenvalues_of_a_linear_system_are_recovered(learned: Any) -> None:
    model, slot, values, _, _ = learned
    assert values["mode.1.modulus"][-1] == pytest.approx(1.0, abs=0.02)  # the constant function
    assert values["mode.2.modulus"][2000:].mean() == pytest.approx(0.95, abs=0.015)
    assert values["mode.2.argument"][2000:].mean() == pytest.approx(0.3, abs=0.02)
    assert values["mode.2.time_constant_s"][2000:].mean() == pytest.approx(-1.0 / np.log(0.95), rel=0.25)
    assert values["mode.2.period_s"][2000:].mean() == pytest.approx(2.0 * np.pi / 0.3, rel=0.07)
    assert values["interval_s"][-1] == 1.0
    found = model.eigenvalues(slot)
    assert np.array_equal(np.abs(found), np.abs(found[np.argsort(-np.abs(found), kind="stable")]))


def test_modes_and_forecasts_are_those_of_dense_arithmetic() -> None:
    z = oscillator(905, 1)
    model = KoopmanModel(("a", "b"), atoms=12, warmup=100, horizon=4)
    slot, _, _ = run(model, z[:897])  # 896 = 14 x 64 pairs learned: modes are of the operator as it stands
    plan, row = model._plan, model.slots.floats[slot]
    op, m = plan.op, int(model.slots.ints[slot, OPERATOR + ATOMS])
    center, scale, gain = row[:2], row[2:4], row[plan.at_gain]
    x_atoms, y_atoms = (row[at : at + 2 * op.room].reshape(2, op.room)[:, :m].T for at in (op.at_x, op.at_y))

    def kernel(p: Float, q: Float) -> Float:
        return np.asarray(np.exp(gain * ((p[:, None] - q[None]) ** 2).sum(axis=2)))

    lx, ly = (np.linalg.cholesky(kernel(atoms, atoms)) for atoms in (x_atoms, y_atoms))
    learned = row[op.at_matrix : op.at_matrix + (op.room + 6) * op.room].reshape(op.room + 6, op.room)
    operator, step = learned[:m, :m], learned[op.room : op.room + 2, :m]
    cross = np.linalg.solve(ly, np.linalg.solve(lx, kernel(y_atoms, x_atoms).T).T)
    koopman = operator.T @ cross
    expected = np.linalg.eigvals(koopman)
    expected = expected[expected.imag >= 0.0]
    expected = expected[np.argsort(-np.abs(expected))][: len(model.eigenvalues(slot))]
    assert np.abs(model.eigenvalues(slot) - expected).max() < 1e-8

    points = z[890:]
    scaled = np.clip((points - center) / scale, -6.0, 6.0)
    features = np.linalg.solve(lx, kernel(x_atoms, scaled))
    heads = sum(np.linalg.matrix_power(koopman, h) @ step.T for h in range(4))
    assert np.allclose(model.forecast(slot, points), center + scale * (scaled + features.T @ heads), atol=1e-8)
    # K phi = lambda phi: in the span, the eigenfunction's coordinates are an eigenvector.
    phi = model.eigenfunctions(slot, points)
    coordinates = np.linalg.lstsq(features.T, phi, rcond=None)[0]
    assert np.allclose(features.T @ koopman @ coordinates, phi * model.eigenvalues(slot), atol=1e-6)


def test_published_values_are_those_of_the_present_state(learned: Any) -> None:
    model, slot, _, _, z = learned
    before = model.snapshot(slot)
    again = model.update(np.array([slot]), z[-2:-1], z[-1:], np.array([SECOND * 3999]))
    published = {column.name: again.values[0, i] for i, column in enumerate(model.columns)}
    model.restore(slot, before)
    phi = model.eigenfunctions(slot, z[-1:])[0]
    assert [published["mode.2.re"], published["mode.2.im"]] == [phi[1].real, phi[1].imag]
    assert [published["forecast.10.a"], published["forecast.10.b"]] == model.forecast(slot, z[-1:])[0].tolist()
    assert model.snapshot(slot) == before


def test_the_spectral_change_is_that_of_its_definition(learned: Any) -> None:
    model, slot, _, _, z = learned
    kept, plan = model.snapshot(slot), model._plan
    own = model.slots.floats[slot, plan.at_shifts : plan.at_shifts + 3 * plan.modes].reshape(-1, 3)
    total, squares = own[:, 0] + 1j * own[:, 1], own[:, 2].copy()
    values = model.eigenvalues(slot)
    for t in range(30):  # 3,999 pairs are learned, less than 64 after the latest computation of the modes
        x, y = z[t : t + 1], z[t + 1 : t + 2]
        before, after = model.eigenfunctions(slot, x)[0], model.eigenfunctions(slot, y)[0]
        missed = before.conj() * (after - values * before)
        total, squares = 0.95 * total + missed, 0.95**2 * squares + abs(missed) ** 2
        others = np.abs(values - 1.0) > np.abs(values - 1.0).min()
        expected = np.sqrt((np.abs(total) ** 2 / squares)[others].mean())
        said = model.update(np.array([slot]), x, y, np.array([SECOND * (4000 + t)])).values[0]
        if np.array_equal(values, model.eigenvalues(slot)):
            assert said[3] == pytest.approx(expected, rel=1e-6)
        else:
            break
    assert t > 20
    model.restore(slot, kept)


def test_the_spectral_change_rises_with_a_turn_that_the_eigenvalues_do_not_show() -> None:
    calm, after = [], []
    for seed in range(8):
        z = np.concatenate((oscillator(2000, seed), oscillator(200, 100 + seed, angle=-0.3)))  # same law, same spectrum
        _, values, _ = run(KoopmanModel(("a", "b")), z)
        calm.append(values["spectral_change"][600:2000])
        after.append(values["spectral_change"][2030:2130])
    assert 0.8 < np.mean(calm) < 1.25
    assert np.quantile(calm, 0.99) < 3.0
    assert np.mean(after) > 2.0 * np.mean(calm)


def test_one_mode_has_no_spectral_change() -> None:
    _, values, _ = run(KoopmanModel(("a", "b"), modes=1), oscillator(500, 3))
    assert np.isnan(values["spectral_change"]).all()


def test_the_error_so_far_is_that_of_the_forecasts_published(learned: Any) -> None:
    _, _, values, _, z = learned
    y = z[1:]
    for h in (1, 10):
        said = np.stack([values[f"forecast.{h}.{name}"] for name in "ab"], axis=1)
        off = (y[h:] - said[:-h])[200:]
        stood_still = (y[h:] - y[:-h])[200:]
        for j, name in enumerate("ab"):
            total = 0.0
            for count, error in enumerate(off[:, j], start=1):
                total += max(1.0 / count, 0.001) * (error * error - total)
            assert values[f"error.{h}.{name}"][-1] == pytest.approx(np.sqrt(total), rel=1e-9)
        skill = 1.0 - (off[-2000:] ** 2).mean() / (stood_still[-2000:] ** 2).mean()
        assert values[f"skill.{h}"][-1] == pytest.approx(skill, abs=0.05)
    assert values["skill.10"][-1] > 0.6  # a rotation: the last value is a poor forecast


def test_no_error_is_counted_over_a_gap() -> None:
    z = np.round(oscillator(700, 2), 1)  # coarse values are equal by chance: only the time tells
    times = SECOND * np.arange(699)
    times[400:] += 60 * SECOND
    broken = z.copy()
    broken[400] += 1.0  # the pair at 400 does not begin where the one before ended
    for states, when in ((z, times), (broken, SECOND * np.arange(699))):
        model = KoopmanModel(("a", "b"), warmup=100)
        slot, n = model.allocate(b"k"), 699
        x = z[:-1].copy()
        x[400] = states[400]
        counts = []
        for t in range(n):
            model.update(np.array([slot]), x[t : t + 1], z[t + 1 : t + 2], when[t : t + 1])
            counts.append(model.slots.ints[slot, -2:].tolist())
        compared = np.diff(np.array(counts), axis=0)[:, :]
        assert compared[120:399].all()
        assert (~compared[398:420].astype(bool)).sum(axis=0).tolist() == [1, 10] or not compared[399].any()
        assert compared[420:].all()


def test_lag_joins_states_further_apart() -> None:
    z, k = oscillator(1200, 3), 3
    model = KoopmanModel(("a", "b"), lag=k, horizon=5)
    slot, n = model.allocate(b"k"), len(z) - k
    said = model.update(np.full(n, slot), z[:-k].copy(), z[k:].copy(), 500 * np.arange(n))
    values = {column.name: said.values[:, i] for i, column in enumerate(model.columns)}
    assert values["interval_s"][-1] == 1.5
    assert values["mode.2.argument"][-1] == pytest.approx(0.9, abs=0.1)
    y = z[k:]
    off = np.square(y[15:, 0] - values["forecast.5.a"][:-15])[200:]
    assert values["error.5.a"][-1] == pytest.approx(np.sqrt(off.mean()), rel=1e-9)


def test_change_of_dynamics_raises_both_scores_with_the_marginal_unchanged() -> None:
    z = np.concatenate((oscillator(2500, 4), oscillator(300, 5, angle=1.2)))
    _, _, scores = run(KoopmanModel(("a", "b")), z)
    assert not np.isfinite(scores[:600]).any()
    assert np.isfinite(scores[600:]).all()
    assert np.abs(scores[1500:2490].mean(axis=0)).max() < 0.15  # standardised
    assert (scores[2520:2600].mean(axis=0) > 0.7).all()


def test_drivers_name_the_feature_that_moves_otherwise() -> None:
    z = np.column_stack((oscillator(1500, 6), oscillator(1500, 7)[:, 0]))
    z[1400:, 2] = np.random.default_rng(6).permuted(z[1400:, 2])
    model = KoopmanModel(("a", "b", "valve"))
    slot, _, _ = run(model, z)
    names = [name for name, _ in model.drivers(slot)]
    assert names[0] == "valve"
    assert sum(weight for _, weight in model.drivers(slot)) == pytest.approx(1.0)
    assert model.drivers(model.allocate(b"fresh")) == ()


@pytest.mark.parametrize("times", [np.zeros(899, dtype=np.int64), -SECOND * np.arange(899)])
def test_without_usable_times_nothing_is_said_in_seconds(times: NDArray[np.int64]) -> None:
    z = oscillator(900, 7)
    _, values, _ = run(KoopmanModel(("a", "b")), z, times)
    assert np.isnan(values["interval_s"]).all()
    assert np.isnan(values["mode.2.time_constant_s"]).all()
    assert values["error.1.a"][-1] < 0.2
    _, values, _ = run(KoopmanModel(("a", "b"), interval_s=0.25), z, times)
    assert values["mode.2.period_s"][-1] == pytest.approx(0.25 * 2.0 * np.pi / values["mode.2.argument"][-1])


def test_the_interval_follows_the_times_and_outlives_gaps() -> None:
    z = oscillator(3001, 8)
    steps = np.full(3000, SECOND)
    steps[[50, 300, 301, 900]] = 3600 * SECOND
    steps[1000:] = 4 * SECOND
    _, values, _ = run(KoopmanModel(("a", "b")), z, np.cumsum(steps))
    assert values["interval_s"][950] == pytest.approx(1.0, rel=0.02)
    assert values["interval_s"][-1] == pytest.approx(4.0, rel=0.01)


@pytest.mark.parametrize("kind", ["constant", "two values", "huge", "still"])
def test_degenerate_streams_stay_finite(kind: str) -> None:
    rng = np.random.default_rng(9)
    z = {
        "constant": np.full((1500, 1), 3.0),
        "two values": rng.integers(0, 2, size=(1500, 1)).astype(np.float64),
        "huge": 1e300 * rng.normal(size=(1500, 1)),
        "still": np.repeat(rng.normal(size=(15, 1)), 100, axis=0),
    }[kind]
    model = KoopmanModel(("a",), warmup=50)
    slot, values, scores = run(model, z)
    assert np.isfinite(model.slots.floats[slot]).sum() > 0.9 * model.slots.floats.shape[1]
    assert np.isfinite(values["innovation"][60:]).all()
    assert np.isfinite(values["forecast.10.a"][60:]).all()
    assert np.isfinite(scores[300:]).all()
    if kind == "constant":
        assert values["forecast.10.a"][-1] == pytest.approx(3.0)


def test_an_operator_that_expands_does_not_overflow_over_a_long_horizon() -> None:
    z = oscillator(300, 3)
    model = KoopmanModel(("a", "b"), warmup=60, horizon=1000)
    slot, _, _ = run(model, z)
    plan, row = model._plan, model.slots.floats[slot]
    row[plan.op.at_matrix : plan.op.at_matrix + plan.op.room**2] *= 5.0
    model._refresh(slot)
    assert np.isfinite(row[plan.op.at_functions : plan.op.at_cov]).all()
    assert np.isfinite(model.forecast(slot, z[:5])).all()


def test_cuts_and_other_keys_change_nothing() -> None:
    z = oscillator(1000, 10)
    whole, cut = KoopmanModel(("a", "b"), warmup=60), KoopmanModel(("a", "b"), warmup=60)
    slot, values, scores = run(whole, z)
    own, other = cut.allocate(b"k"), cut.allocate(b"other")
    parts = []
    for a, b in itertools.pairwise([0, 1, 59, 60, 61, 130, 131, 700, 999]):
        slots = np.full(b - a, own)
        parts.append(cut.update(slots, z[a:b], z[a + 1 : b + 1], SECOND * np.arange(a, b)))
        cut.update(np.full(30, other), z[:30], z[1:31], np.arange(30))
    got = np.concatenate([part.values for part in parts])
    assert np.array_equal(got, np.stack(list(values.values()), axis=1), equal_nan=True)
    assert np.array_equal(np.concatenate([part.scores for part in parts]), scores, equal_nan=True)
    assert np.array_equal(whole.slots.floats[slot], cut.slots.floats[own], equal_nan=True)


def test_the_single_key_class_is_the_bank() -> None:
    z = oscillator(600, 11)
    one, many = Koopman(2, warmup=60), KoopmanModel(("f0", "f1"), warmup=60)
    answer = one.update(z[:-1], z[1:], SECOND * np.arange(599))
    slot, values, _ = run(many, z)
    assert np.array_equal(answer.values, np.stack(list(values.values()), axis=1), equal_nan=True)
    assert one.columns == tuple(values)
    assert np.array_equal(one.forecast(z[:5]), many.forecast(slot, z[:5]))
    other = Koopman(2, warmup=60)
    assert np.isnan(other.forecast(z[:1])).all()
    assert len(other.eigenvalues()) == 0
    other.restore(one.snapshot())
    assert np.array_equal(other.eigenvalues(), one.eigenvalues())
    assert np.array_equal(other.eigenfunctions(z[:5]), one.eigenfunctions(z[:5]))


@pytest.mark.parametrize(
    ("option", "value"),
    [("atoms", 4), ("warmup", 5), ("horizon", 0), ("modes", 0), ("modes", 25), ("forgetting", 0.0),
     ("forgetting", 0.9), ("lag", 0),
     ("interval", -1.0), ("width", 1.0)],
)  # fmt: skip
def test_a_wrong_option_is_named(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        KoopmanKind().build(Shape(("a",), ("a",), 0), {option: value})


def test_memory_is_as_the_documentation_says() -> None:
    assert KoopmanModel(("a",)).bytes_per_key < 100_000
