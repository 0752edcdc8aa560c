"""The detector for one stream per key: what it finds, what it says of it, and what it does afterwards."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kstream_worker.detectors import bets, ranking
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import ARMED, PHASE, RAISED, WHITEN
from kstream_worker.detectors.ranks_rows import column_weights, make_layout
from kstream_worker.numerics.jit import jit
from kstream_worker.numerics.random import stream_of, uniform
from kstream_worker.records import Scores, Transition

Matrix = NDArray[np.float64]

GOLDEN = Path(__file__).parents[1] / "golden"
SECOND = 1000  # milliseconds between samples
ORIGIN = 1_700_000_000_000
CHANGE = 1000
ARL = 10_000.0


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def normal(n: int, dims: int = 2, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).normal(size=(n, dims))


def autoregressive(n: int, dims: int, coefficient: float, seed: int) -> Matrix:
    y = normal(n, dims, seed)
    for t in range(1, n):
        y[t] = coefficient * y[t - 1] + math.sqrt(1.0 - coefficient**2) * y[t]
    return y


def bank_of(dims: int = 2, **settings: Any) -> RankBank:
    return RankBank(dims, **{"arl": ARL, "dependence": "none", "capacity": 1, **settings})


def run(bank: RankBank, y: Matrix, slot: int | None = None, first: int = 0) -> Scores:
    slot = bank.allocate(b"key") if slot is None else slot
    times = ORIGIN + SECOND * (first + np.arange(len(y)))
    return bank.update(np.full(len(y), slot), None, y, times)


def raised(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "raised"]


def changed(kind: str, n: int = 2500, seed: int = 3) -> Matrix:
    y = normal(n, 2, seed)
    live = y[CHANGE:]
    if kind == "m1":
        live[:, 0] += 1.0
    elif kind == "down":
        live[:, 1] -= 1.0
    elif kind == "var2":
        live *= math.sqrt(2.0)
    elif kind == "corr":
        live[:, 1] = 0.8 * live[:, 0] + 0.6 * live[:, 1]
    elif kind == "stuck":
        live[:] = live[0]
    elif kind == "far":
        live += 10.0
    return y


# --- reference vectors -------------------------------------------------------------------------------------------


def test_multipliers_of_the_reference() -> None:
    vectors = golden("det_bets_sr")
    for size, function, name in ((14, bets.two_sided, "two_sided"), (6, bets.one_sided, "one_sided")):
        g = np.empty(size)
        for p, expected in zip(vectors["input"]["p_list"], vectors["expected"][name], strict=True):
            function(p, g)
            np.testing.assert_allclose(g, expected, rtol=vectors["rtol"])


def test_shiryaev_roberts_of_the_reference() -> None:
    vectors = golden("det_bets_sr")
    for case, expected in zip(vectors["input"]["cases"], vectors["expected"]["sr"], strict=True):
        two = case["kind"] == "two"
        size = 14 if two else 6
        R, held, g = np.zeros(size + 3), np.zeros(size + 3), np.empty(size)
        means, alarms = [], []
        for p in vectors["input"]["p_stream"]:
            (bets.two_sided if two else bets.one_sided)(p, g)
            means.append(bets.shiryaev_roberts(R, g, 3, size, float(case["a"])))
            if len(means) in vectors["input"]["at"]:
                k = vectors["input"]["at"].index(len(means))
                np.testing.assert_allclose(R[3:], expected["R_at"][k], rtol=vectors["rtol"])
                assert means[-1] == pytest.approx(expected["column_at"][k], rel=vectors["rtol"])
            if bets.shiryaev_roberts(held, g, 3, size, float(case["a"])) >= case["threshold"]:
                alarms.append(len(means) - 1)
                held[:] = 0.0
        assert alarms == expected["alarm_indices_with_R_reset_to_zero"]
        first = next(t for t, mean in enumerate(means) if mean >= case["threshold"])
        assert first == expected["first_alarm_index_without_reset"]


def test_ranks_of_the_reference() -> None:
    vectors = golden("det_rank_p")
    given, expected, rtol = vectors["input"], vectors["expected"], vectors["rtol"]
    m, weights = given["m"], given["w"]
    bag, size = np.zeros(3 * m, dtype=np.int16), 0
    q = np.zeros(3, dtype=np.int16)
    R, g = np.zeros((4, 14)), np.empty(14)
    at = dict(zip(given["at"], expected["columns_at"], strict=True))

    def load(z: list[float]) -> None:
        q[:2] = [ranking.quantise(value) for value in z]
        q[2] = ranking.radius(q, 2)

    for z in given["bag0"]:
        load(z)
        ranking.place(bag, m, 3, size, m, q)
        size += 1
    for t, z in enumerate(given["z"]):
        load(z)
        assert size == expected["bag_size"][t]
        counts = [ranking.count(bag[c * m : c * m + size], q[c]) for c in range(3)]
        counts.append(ranking.count_products(bag[:size], bag[m : m + size], ranking.product(q[0], q[1])))
        assert [int(c[0]) for c in counts] == expected["gt"][t]
        assert [int(c[1]) for c in counts] == expected["eq"][t]
        p = [ranking.p_value(int(gt), int(eq), size, given["U"][t]) for gt, eq in counts]
        np.testing.assert_allclose(p, expected["p"][t], rtol=rtol)
        values = []
        for c in range(4):
            bets.two_sided(p[c], g)
            values.append(weights[c] * bets.shiryaev_roberts(R[c], g, 0, 14, 1.0))
        if t + 1 in at:
            np.testing.assert_allclose(values, at[t + 1], rtol=rtol)
        ranking.place(bag, m, 3, size, given["removal"][t], q)
        size = min(size + 1, m)
    np.testing.assert_array_equal(bag[: 2 * m].reshape(2, m).T / ranking.STEPS, expected["final_bag"])


# --- exactness ---------------------------------------------------------------------------------------------------


@jit
def p_values_of(q: NDArray[np.int16], room: int, stream: np.uint64, out: Matrix) -> None:
    bag = np.zeros(room, dtype=np.int16)
    size = 0
    for t in range(len(q)):
        larger, equal = ranking.count(bag[:size], q[t])
        out[t] = ranking.p_value(larger, equal, size, uniform(stream, 0, t))
        ranking.place(bag, room, 1, size, int(uniform(stream, 1, t) * (room + 1)), q[t : t + 1])
        size = min(size + 1, room)


@pytest.mark.parametrize("step", [1, 4096, 12288])
def test_p_values_are_uniform_and_independent_with_ties(step: int) -> None:
    n = 40_000
    z = np.random.default_rng(11).normal(size=n)
    q = (np.round(z * 4096 / step) * step).clip(-24576, 24576).astype(np.int16)
    p = np.empty(n)
    p_values_of(q, 100, stream_of(4, b"key"), p)
    distance = np.abs(np.sort(p) - (np.arange(n) + 0.5) / n).max()
    assert distance < 1.63 / math.sqrt(n)  # Kolmogorov-Smirnov, 1 %
    for lag in (1, 2, 7):
        assert abs(np.corrcoef(p[lag:], p[:-lag])[0, 1]) < 3.0 / math.sqrt(n)


def p_values_in_a_bank(y: NDArray[np.float64], warmup: int) -> dict[str, Matrix]:
    """p of every test of every key, read off the statistic of the bet 1 + .95 b: [tests, keys] by column."""
    n, keys, dims = y.shape
    bank = bank_of(dims, arl=1e20, warmup=warmup, capacity=keys, seed=3)
    layout = make_layout(dims, warmup, 0)
    slots = np.array([bank.allocate(b"key %d" % key) for key in range(keys)])
    bank.update(np.tile(slots, warmup), None, y[:warmup].reshape(-1, dims), np.zeros(warmup * keys, dtype=np.int64))
    columns = {"learned": (layout.learned, 2), "mean": (layout.fixed, 25), "f0": (0, 1), "product": (dims + 1, 1)}
    found: dict[str, list[Matrix]] = {name: [] for name in columns}
    former = np.zeros((keys, layout.bets))
    for t in range(n - warmup):
        bank.update(slots, None, y[warmup + t], np.zeros(keys, dtype=np.int64))
        R = bank._slots.floats[slots, layout.R : layout.values].view(np.float32)[:, : layout.bets].astype(float)
        for name, (column, a) in columns.items():
            if (t + 1) % a == 0:
                k = column * bets.TWO_SIDED + 3
                found[name].append((1.0 - (R[:, k] / (former[:, k] + a) - 1.0) / 0.95) / 2.0)
        former = R
    return {name: np.array(p) for name, p in found.items()}


@pytest.mark.parametrize("unit", [0.0, 1.0])
def test_p_values_of_the_bank_are_uniform_and_independent_in_every_column(unit: float) -> None:
    """The learned score too, while it learns; the bags of 1,000 and 500 are full for the last samples. With ties."""
    y = np.random.default_rng(17).normal(size=(2000, 30, 2))
    for name, p in p_values_in_a_bank(np.round(y / unit) * unit if unit else y, 200).items():
        n = p.size
        distance = np.abs(np.sort(p.ravel()) - (np.arange(n) + 0.5) / n).max()
        assert distance < 1.63 / math.sqrt(n), name  # Kolmogorov-Smirnov, 1 %
        centred = p - 0.5
        for lag in (1, 2, 16):
            products = centred[lag:] * centred[:-lag]
            assert abs(products.mean()) * 12.0 < 3.3 / math.sqrt(products.size), (name, lag)


def test_quantising_keeps_ties_and_sees_the_smallest_move() -> None:
    assert [int(ranking.quantise(z)) for z in (0.0, 1e-9, -1e-9, 0.25, -0.25, 1e300, -1e300)] == [
        0,
        1,
        -1,
        1024,
        -1024,
        32767,
        -32767,
    ]
    for dims in (2, 7, 8, 10, 40):
        corner = np.full(dims, 32767, dtype=np.int16)
        assert 8000 < ranking.radius(corner, dims) <= 32767


@pytest.mark.parametrize("dims", [1, 2, 5, 10, 12])
def test_weights_sum_to_one(dims: int) -> None:
    layout = make_layout(dims, 200, 0)
    weights = column_weights(layout)
    assert weights.sum() == pytest.approx(1.0)
    assert len(weights) == layout.columns
    assert (weights > 0.0).all()


# --- what is found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "direction"),
    [
        ("m1", 80, "up"),
        ("down", 80, "down"),
        ("var2", 150, None),
        ("corr", 120, "up"),
        ("stuck", 60, None),
        ("far", 10, None),
    ],
)
def test_changes_are_found_and_described(kind: str, limit: int, direction: str | None) -> None:
    scores = run(bank_of(feature_names=("flow", "temp")), changed(kind))
    first = raised(scores)[0]
    assert 0 < first.seq - CHANGE <= limit
    assert abs(first.change_seq - CHANGE) <= limit
    assert first.change_time == ORIGIN + SECOND * (first.change_seq - 1)
    assert first.threshold == 2.0 * ARL
    assert first.evidence >= first.threshold
    assert first.guarantee == ("approximate" if first.reason.startswith("spike") else "exact_if_iid")
    assert sum(weight for _, weight in first.features) == pytest.approx(1.0)
    assert direction is None or first.direction == direction
    if kind in ("m1", "down"):
        assert first.features[0][0] == ("flow" if kind == "m1" else "temp")
        assert first.reason == first.features[0][0]
    if kind == "corr":
        assert first.reason in ("flow*temp", "learned")


@pytest.mark.parametrize("seed", range(3))
def test_one_step_gives_one_alarm_then_the_key_is_armed_again(seed: int) -> None:
    bank = bank_of()
    slot = bank.allocate(b"key")
    scores = run(bank, changed("m1", n=4000, seed=20 + seed), slot)
    assert [t.kind for t in scores.transitions] == ["raised", "cleared"]
    alarm, over = scores.transitions
    assert over.seq == alarm.seq + 200
    assert over.reason == "rearmed"
    assert not bank.raised(slot)
    assert set(scores.state[alarm.row + 1 : over.row + 1]) == {0}
    assert scores.state[over.row + 1] == 1
    assert np.isnan(scores.log_ratio[alarm.row + 1])


def test_no_alarm_without_a_change_and_a_ratio_near_one() -> None:
    scores = run(bank_of(), normal(6000, seed=8))
    assert scores.transitions == []
    late = scores.log_ratio[3000:]
    assert abs(float(np.median(late))) < 0.2
    assert (scores.evidence[:200] == 0.0).all()
    assert (scores.evidence[200:] > 0.0).all()


def test_the_ratio_rises_where_a_change_leads() -> None:
    scores = run(bank_of(arl=1e20), changed("m1", n=CHANGE + 150))
    assert scores.log_ratio[-60:].mean() > scores.log_ratio[CHANGE - 300 : CHANGE].mean() + 0.1
    assert scores.divergence[-1] > scores.divergence[CHANGE - 1] + 0.02


def test_ties_and_constants() -> None:
    y = np.round(normal(3000, seed=5))
    assert raised(run(bank_of(), y)) == []
    y[2000:, 0] += 2.0
    assert 0 < raised(run(bank_of(), y))[0].seq - 2000 < 60
    still = np.full((3000, 2), 21.5)
    assert raised(run(bank_of(), still)) == []
    y = normal(3000, seed=6)
    y[:, 1] = 20.0
    assert raised(run(bank_of(), y)) == []
    y[2000:, 1] += 0.01
    alarm = raised(run(bank_of(feature_names=("a", "b")), y))[0]
    assert 0 < alarm.seq - 2000 <= 6
    assert alarm.features[0][0] == "b"


@pytest.mark.parametrize("dependence", ["none", "auto"])
def test_a_tiny_constant_that_moves_by_a_hair(dependence: str) -> None:
    y = np.full((1500, 1), 3e-7)
    y[1200:] *= 1.001
    alarms = raised(run(bank_of(1, dependence=dependence), y))
    assert 0 < alarms[0].seq - 1200 <= 10


@pytest.mark.parametrize("dependence", ["none", "auto"])
def test_extreme_values(dependence: str) -> None:
    y = normal(3000, seed=9)
    y[100] = [1e300, -1e300]
    y[1500] = [-1.7e308, 1.7e308]
    y[1501] = [5e-324, -0.0]
    scores = run(bank_of(dependence=dependence), y)
    assert np.isfinite(scores.evidence).all()
    assert np.isfinite(scores.log_ratio[~np.isnan(scores.log_ratio)]).all()
    assert scores.state[-1] == 1
    wide = run(bank_of(dependence=dependence), 1e308 * np.sign(normal(2000, seed=1)))
    assert np.isfinite(wide.evidence).all()


def test_a_whitened_feature_that_leaves_the_range_of_its_autoregression_is_followed() -> None:
    bank = bank_of(1, dependence="whiten", on_alarm="hold", dead_time_ms=1400 * SECOND)
    slot = bank.allocate(b"key")
    y = autoregressive(2900, 1, 0.6, seed=4)
    y[2700:] *= 4.0
    y[700:] += 200.0
    scores = run(bank, y[:2100], slot)
    assert [t.kind for t in scores.transitions] == ["raised"]
    layout = make_layout(1, 600, WHITEN)
    ring = bank._slots.floats[slot, layout.ring : layout.ring + 8]
    assert (np.abs(ring) < 10.0).all()
    later = raised(run(bank, y[2100:], slot, first=2100))
    assert 0 < later[0].seq - 2700 < 100


def test_refuses_what_is_not_finite_and_changes_nothing() -> None:
    bank = bank_of()
    slot = bank.allocate(b"key")
    run(bank, normal(300), slot)
    before = bank.snapshot(slot)
    bad = normal(3)
    bad[1, 1] = np.nan
    with pytest.raises(ValueError, match=r"y\[1, 1\]"):
        run(bank, bad, slot)
    with pytest.raises(ValueError, match="own past"):
        bank.update(np.array([slot]), normal(1), normal(1), np.array([0]))
    assert bank.snapshot(slot) == before


# --- after an alarm ----------------------------------------------------------------------------------------------


def test_hold_keeps_the_bags_and_says_so() -> None:
    bank = bank_of(on_alarm="hold", dead_time_ms=500 * SECOND)
    slot = bank.allocate(b"key")
    scores = run(bank, changed("m1", n=4000), slot)
    alarm, again = scores.transitions[:2]
    assert (alarm.kind, again.kind) == ("raised", "raised")
    held = slice(alarm.row + 1, alarm.row + 500)
    assert set(scores.state[held]) == {2}
    assert (scores.evidence[held] == 0.0).all()
    assert np.isfinite(scores.log_ratio[held]).all()
    assert set(scores.state[held.stop : again.row + 1]) == {1}
    assert alarm.guarantee == "exact_if_iid"
    assert again.guarantee == "approximate"
    assert "held" in again.guarantee_reason


def test_dead_time_delays_the_clearing_of_a_rebased_key() -> None:
    bank = bank_of(dead_time_ms=700 * SECOND)
    scores = run(bank, changed("m1", n=4000))
    alarm, over = scores.transitions[:2]
    assert over.seq == alarm.seq + 700
    assert set(scores.state[alarm.row + 201 : over.row]) == {2}


@pytest.mark.parametrize("on_alarm", ["rebase", "hold"])
@pytest.mark.parametrize("dead", [703, 712])
def test_after_a_dead_time_tests_are_credited_with_samples_since_arming_alone(on_alarm: str, dead: int) -> None:
    """The block of 25 that the clearing cuts in two gives no bet: its first comes with the 25th armed sample."""
    bank = bank_of(on_alarm=on_alarm, dead_time_ms=dead * SECOND)
    slot = bank.allocate(b"key")
    y = changed("m1", n=4000)
    whole = run(bank_of(on_alarm=on_alarm, dead_time_ms=dead * SECOND), y)
    at = whole.transitions[0].row + dead
    assert list(whole.state[at - 1 : at + 1]) == [RAISED, ARMED]
    run(bank, y[:at], slot)
    layout = make_layout(2, 200, 0)
    means = slice(layout.values + layout.fixed, layout.values + layout.fixed + 2)
    learned = layout.values + layout.learned
    for armed in range(1, 26):
        scores = run(bank, y[at + armed - 1 : at + armed], slot, first=at + armed - 1)
        assert scores.state[0] == ARMED
        values = bank._slots.floats[slot]
        assert (values[means] > 0.0).all() == (armed == 25)
        assert (values[learned] > 0.0) == (armed >= 2)


def test_forgetting_a_raised_key_owes_a_transition() -> None:
    bank = bank_of()
    slot = bank.allocate(b"key")
    assert bank.forget(slot) is None
    end = raised(run(bank, changed("m1"), bank.allocate(b"other")))[0].row + 1
    run(bank, changed("m1")[: end + 30], slot)
    assert bank.raised(slot)
    owed = bank.forget(slot)
    assert owed is not None
    assert (owed.kind, owed.reason, owed.row) == ("cleared", "forgotten", -1)
    assert bank.raised(slot)


def test_draws_depend_on_seed_key_and_number_alone() -> None:
    y = changed("var2", n=1600)
    whole = run(bank_of(seed=1), y)
    bank = bank_of(seed=1)
    slot = bank.allocate(b"key")
    parts = [run(bank, y[i : i + 7], slot, first=i) for i in range(0, len(y), 7)]
    assert np.concatenate([part.evidence for part in parts]).tobytes() == whole.evidence.tobytes()
    assert run(bank_of(seed=2), y).evidence.tobytes() != whole.evidence.tobytes()


# --- dependence --------------------------------------------------------------------------------------------------


def test_an_autoregression_is_whitened_and_does_not_flood() -> None:
    y = autoregressive(8000, 2, 0.6, seed=4)
    assert len(raised(run(bank_of(), y))) > 5
    bank = bank_of(dependence="auto")
    slot = bank.allocate(b"key")
    scores = run(bank, y, slot)
    assert len(raised(scores)) <= 1
    y[6000:, 0] += 3.0
    alarm = raised(run(bank_of(dependence="auto"), y))[0]
    assert 0 < alarm.seq - 6000 < 120
    assert alarm.guarantee == "approximate"
    assert "autoregressions" in alarm.guarantee_reason


def test_volatility_that_comes_in_clusters_is_named() -> None:
    rng = np.random.default_rng(2)
    y = np.empty((3000, 1))
    variance, last = 1.0, 0.0
    for t in range(len(y)):
        variance = 0.05 + 0.3 * last**2 + 0.65 * variance
        last = math.sqrt(variance) * rng.normal()
        y[t] = last
    alarms = raised(run(bank_of(1, dependence="auto", arl=100.0), y))
    assert alarms[0].guarantee == "none"
    assert "volatility" in alarms[0].guarantee_reason


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dependence", "warmup"), [("none", 20), ("auto", 60), ("whiten", 60)])
def test_short_series(dependence: str, warmup: int) -> None:
    y = normal(300, 1, seed=12)
    y[180:] += 4.0
    bank = RankBank(1, arl=200.0, warmup=warmup, dependence=dependence)
    slot = bank.allocate(b"key")
    scores = run(bank, y[:180], slot)
    assert scores.state[warmup - 1] == 0
    assert bank._slots.ints[slot, PHASE] == ARMED or raised(scores)
    later = raised(run(bank, y[180:], slot, first=180))
    assert 180 < later[0].seq < 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dims": 0}, "dims"),
        ({"arl": 1.0}, "arl is 1.0"),
        ({"arl": 1e21}, "1e\\+20"),
        ({"warmup": 19}, "20"),
        ({"warmup": 59, "dependence": "auto"}, "60"),
        ({"warmup": 2001}, "2000"),
        ({"dependence": "maybe"}, "dependence"),
        ({"on_alarm": "stop"}, "on_alarm"),
        ({"profile": "tiny"}, "profile"),
        ({"transform": "log"}, "transform"),
        ({"dead_time_ms": -1}, "dead_time_ms"),
        ({"feature_names": ("a",)}, "feature_names"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bank_of(**settings)


def test_the_row_holds_what_it_says() -> None:
    for dims, most in ((1, 25_000), (2, 40_000), (5, 60_000), (10, 100_000)):
        bank = RankBank(dims, capacity=4)
        assert bank.bytes_per_key <= most
        assert bank.nbytes == 4 * bank.bytes_per_key
        assert sum(bank.bytes_by_part().values()) == bank.bytes_per_key
    assert RankBank(2, profile="compact", capacity=1).bytes_per_key <= 12_000
    long = RankBank(2, warmup=2000, dependence="none", capacity=1)
    slot = long.allocate(b"key")
    assert long.update(np.full(2600, slot), None, normal(2600), np.arange(2600)).state[-1] == 1


@pytest.mark.parametrize(("shift", "direction"), [(6.0, "up"), (-6.0, "down")])
def test_the_direction_of_a_whitened_key_is_that_of_its_level(shift: float, direction: str) -> None:
    rng = np.random.default_rng(11)
    noise = rng.standard_normal(1600)
    y = np.zeros(1600)
    for i in range(1, 1600):
        y[i] = 0.6 * y[i - 1] + noise[i]
    y[1200:] += shift
    bank = RankBank(1, arl=100_000.0, dependence="whiten")
    slots = np.full(1600, bank.allocate(b"key"), dtype=np.int64)
    scores = bank.update(slots, None, y[:, None], np.arange(1600, dtype=np.int64))
    raised = [t for t in scores.transitions if t.kind == "raised"]
    assert raised[0].direction == direction
    assert 1200 <= raised[0].row <= 1240
