"""The detector against a frozen reference: its ranks, its tolerance, what it finds, and what it does afterwards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from told_alarms import change, check_told

from benchmarks import arl_reference
from kstream_worker.detectors import ranking, reference_bets
from kstream_worker.detectors.ranks_rows import sample_weights
from kstream_worker.detectors.reference import ReferenceBank, digest_of
from kstream_worker.detectors.reference_layout import make_layout
from kstream_worker.numerics.random import stream_of, uniform
from kstream_worker.records import Incident, Scores, Transition

Matrix = NDArray[np.float64]

SECOND = 1000  # milliseconds between samples
ORIGIN = 1_700_000_000_000
RANK = 0  # role of the draw that breaks ties
N = 500


def normal(n: int, dims: int = 2, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).normal(size=(n, dims))


def bank_of(dims: int = 2, **settings: Any) -> ReferenceBank:
    return ReferenceBank(dims, **{"arl": 5000.0, "capacity": 1, **settings})


def run(bank: ReferenceBank, y: Matrix, slot: int | None = None, first: int = 0) -> Scores:
    slot = bank.allocate(b"key") if slot is None else slot
    times = ORIGIN + SECOND * (first + np.arange(len(y)))
    return bank.update(np.full(len(y), slot), None, y, times)


def raised(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "raised"]


# --- ranks and tolerance -----------------------------------------------------------------------------------------


def p_by_hand(reference: Matrix, z: Matrix, u: float) -> list[float]:
    """Coordinates in all of the reference, radius and product in its second half; scales from the first."""
    half = len(reference) // 2
    low, middle, high = np.quantile(reference[:half], [0.25, 0.5, 0.75], axis=0)
    scaled = (np.vstack((reference, z)) - middle) / ((high - low) / 1.349)
    q = np.array([[ranking.quantise(value) for value in row] for row in scaled], dtype=np.int64)
    scores = [q[:, 0], q[:, 1], np.array([ranking.radius(row.astype(np.int16), 2) for row in q])]
    scores.append(q[:, 0] * q[:, 1] >> 16)
    found = []
    for column, score in enumerate(scores):
        bag, own = score[0 if column < 2 else half : -1], score[-1]
        found.append(float(((bag > own).sum() + u * ((bag == own).sum() + 1)) / (len(bag) + 1)))
    return found


@pytest.mark.parametrize("unit", [0.0, 0.5])
def test_ranks_are_those_in_the_frozen_reference(unit: float) -> None:
    y = normal(N + 20, seed=3)
    y = np.round(y / unit) * unit if unit else y
    bank = bank_of(arl=1e19, seed=9)
    slot = bank.allocate(b"key")
    layout = make_layout(2, N)
    run(bank, y[:N], slot)
    former = np.zeros(layout.bets)
    bold = np.arange(4) * reference_bets.SIDED_BETS + 3
    for t in range(N, len(y)):
        run(bank, y[t : t + 1], slot, first=t)
        R = bank._slots.floats[slot, layout.R :].view(np.float32)[: layout.bets].astype(np.float64)
        multipliers = R[bold] / (former[bold] + 1.0)
        former = R
        expected = np.empty((4, 16))
        u = uniform(stream_of(9, b"key"), RANK, t + 1)
        for column, p in enumerate(p_by_hand(y[:N], y[t], u)):
            reference_bets.sided(p, bank._z / math.sqrt(N if column < 2 else N // 2), expected[column])
        np.testing.assert_allclose(multipliers, expected[:, 3], rtol=1e-6)


def test_no_sample_joins_the_reference() -> None:
    y = normal(3 * N, seed=4)
    bank = bank_of()
    slot = bank.allocate(b"key")
    run(bank, y[: N + 1], slot)
    bags = bank._slots.shorts[slot, : bank._layout.steps]  # behind it: what the key remembers
    frozen = bags.copy()
    y[2 * N :] += 2.0
    assert raised(run(bank, y[N + 1 :], slot, first=N + 1))
    np.testing.assert_array_equal(bags, frozen)


def test_the_tolerance_bounds_all_payoffs_for_most_references() -> None:
    """The mean of every payoff given the reference, by integration over a uniform law."""
    from scipy.stats import norm

    n, delta, repeats = 200, 0.2, 200
    z = reference_bets.tolerance(delta, fixed=1)
    assert z == pytest.approx(norm.isf(delta / 5), abs=1e-6)
    rng = np.random.default_rng(1)
    at = (np.arange(500) + 0.5) / 500
    g = np.empty(16)
    means = np.empty((repeats, 4))
    for r in range(repeats):
        larger = n - np.searchsorted(np.sort(rng.uniform(size=n)), at, side="right")
        total = np.zeros(4)
        for p in (larger + 0.5) / (n + 1):
            reference_bets.sided(float(p), z / math.sqrt(n), g)
            total += g[3::4]
        means[r] = total / len(at)
    np.testing.assert_allclose(means.std(axis=0) * math.sqrt(n) / 0.8, [3**-0.5, 3**-0.5, 5**-0.5, 5**-0.5], rtol=0.1)
    assert 0.08 < (means > 1.0).any(axis=1).mean() < 0.24


def test_multipliers_are_positive_and_fair_without_a_tolerance() -> None:
    p = (np.arange(1000) + 0.5) / 1000
    g = np.empty((1000, 16))
    for i, value in enumerate(p):
        reference_bets.sided(float(value), 0.0, g[i])
    np.testing.assert_allclose(g.mean(axis=0), 1.0, atol=1e-5)
    z = reference_bets.tolerance(0.05, fixed=56)
    assert reference_bets.is_playable(z, 250)
    assert not reference_bets.is_playable(z, 60)
    for value in (0.0, 0.5, 1.0):
        reference_bets.sided(value, z / math.sqrt(250), g[0])
        assert (g[0] > 0.0).all()


def test_the_short_bench_stays_below_the_nominal_rate_and_would_not_without_a_tolerance() -> None:
    """Nominal: 10 alarms in 100,000 samples."""
    (row,) = arl_reference.run(short=True).values()
    assert row["alarms"]["mean"] <= arl_reference.NOMINAL
    assert row["alarms_without_tolerance"]["mean"] > 2 * arl_reference.NOMINAL
    assert row["delay"]["m1"]["missed"] == 0
    assert row["delay"]["m1"]["ratio"] <= arl_reference.MOST_DELAY


@pytest.mark.parametrize("dims", [1, 2, 5, 10, 12])
def test_weights_sum_to_one(dims: int) -> None:
    layout = make_layout(dims, N)
    weights = sample_weights(layout)
    assert weights.sum() == pytest.approx(1.0)
    assert len(weights) == layout.columns
    assert (weights > 0.0).all()


# --- what is found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dims", "most"), [(1, 55), (2, 60)])
def test_the_delay_of_a_shift_is_that_measured(dims: int, most: int) -> None:
    delays, directions = [], []
    for seed in range(15):
        y = normal(N + 1500, dims, seed=(dims, seed))
        y[N + 1000 :, 0] += 1.0
        alarms = [t for t in raised(run(bank_of(dims), y)) if t.seq > N + 1000]
        delays.append(alarms[0].seq - N - 1000)
        directions.append(alarms[0].direction)
        assert alarms[0].features[0][0] == "f0"
        assert abs(alarms[0].change_seq - N - 1001) <= 75
    assert np.median(delays) <= most
    assert directions.count("up") >= 13


@pytest.mark.parametrize(("kind", "most"), [("var2", 300), ("corr", 150), ("stuck", 60), ("far", 25)])
def test_other_changes_are_found(kind: str, most: int) -> None:
    y = normal(N + 2000, seed=21)
    live = y[N + 1000 :]
    if kind == "var2":
        live *= math.sqrt(2.0)
    elif kind == "corr":
        live[:, 1] = 0.8 * live[:, 0] + 0.6 * live[:, 1]
    elif kind == "stuck":
        live[:] = live[0]
    else:
        live -= 10.0
    scores = run(bank_of(feature_names=("flow", "temp")), y)
    alarm = raised(scores)[0]
    assert 0 < alarm.seq - N - 1000 <= most
    assert alarm.change_time == ORIGIN + SECOND * (alarm.change_seq - 1)
    assert (scores.state[:N] == 0).all()
    assert (scores.state[N : alarm.row + 1] == 1).all()
    assert np.isnan(scores.log_ratio[:N]).all()
    assert np.isfinite(scores.log_ratio[N:]).all()
    if kind == "far":
        assert alarm.direction == "down"
    if kind == "corr":
        assert alarm.reason in ("flow*temp", "learned")


def test_a_drift_of_a_hair_a_sample_is_found_against_the_commissioning() -> None:
    y = normal(N + 12_000, 1, seed=31)
    y[N + 1000 :, 0] += np.arange(11_000) / 20_000
    alarms = raised(run(bank_of(1), y))
    assert 1000 < alarms[0].seq - N - 1000 < 8000
    assert alarms[0].direction == "up"


# --- after an alarm ----------------------------------------------------------------------------------------------


def test_an_alarm_stays_up_for_the_dead_time_and_comes_again_while_the_drift_lasts() -> None:
    y = normal(N + 3000, seed=5)
    y[N + 500 : N + 1500, 0] += 2.0
    bank = bank_of(dead_time_ms=400 * SECOND)
    slot = bank.allocate(b"key")
    scores = run(bank, y, slot)
    *ups, down = scores.transitions
    assert (down.kind, down.reason) == ("cleared", "recovered")
    assert N + 1500 < down.seq < N + 2500
    assert len(ups) == len(raised(scores)) == 3  # at 500, and after each dead time until the drift has passed
    for repeat, up in enumerate(ups):
        held = slice(up.row + 1, up.row + 400)
        assert (scores.state[held] == 2).all()
        assert (scores.evidence[held] == 0.0).all()
        assert scores.state[held.stop] == 1
        assert up.guarantee == down.guarantee == "approximate"
        assert up.incident == Incident(ups[0].seq, up.incident.time_ms if up.incident else 0, repeat)
    assert not bank.raised(slot)


def test_forgetting_a_raised_key_owes_a_transition() -> None:
    bank = bank_of(dead_time_ms=10**9)
    slot = bank.allocate(b"key")
    y = normal(N + 400, seed=6)
    y[N + 200 :] += 3.0
    assert bank.forget(slot) is None
    run(bank, y, slot)
    owed = bank.forget(slot)
    assert owed is not None
    assert (owed.kind, owed.reason, owed.row) == ("cleared", "forgotten", -1)


# --- what an alarm says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["level", "spread", "dependence", "stuck"])
def test_alarms_are_explained_against_the_reference(kind: str) -> None:
    """Twenty keys in the units of their features: when, which, what kind, and how far."""
    keys, changed = 20, N + 400
    y = np.random.default_rng(21).normal(size=(changed + 300, keys, 3))
    change(y[changed:], kind)
    if kind == "stuck":
        y[changed:, :, 1] = y[changed, :, 1]
    y = y * (1.0, 5.0, 0.1) + (0.0, 100.0, -7.0)
    bank = bank_of(3, arl=1e4, dead_time_ms=10**9)
    slots = np.array([bank.allocate(b"%d" % key) for key in range(keys)])
    times = np.repeat(SECOND * np.arange(len(y)), keys)
    scores = bank.update(np.tile(slots, len(y)), None, y.reshape(-1, 3), times)
    alarms = [one for one in raised(scores) if one.seq > changed]
    told = check_told(alarms, kind, keys, changed + 1)
    own = [next(part for part in one.summaries if part.name == "f1") for one in told if one.summaries[0].name == "f1"]
    assert all(part.before[2] == N and abs(part.before[0] - 100.0) < 2.0 for part in own)
    sizes = {"level": (2.0, 9.0), "spread": (1.0, 12.0), "dependence": (-6.0, 6.0), "stuck": (-7.0, -3.5)}
    low, high = sizes[kind]
    assert low < float(np.median([part.size for part in own])) < high


# --- where the reference comes from ------------------------------------------------------------------------------


def reason_of(bank: ReferenceBank, key: bytes, y: Matrix, first: int = 0) -> tuple[int, str]:
    """Samples before arming, and the reason given with the first alarm."""
    scores = run(bank, y, bank.allocate(key), first)
    return int((scores.state == 0).sum()), raised(scores)[0].guarantee_reason


def test_references_that_are_given_arm_at_the_first_sample() -> None:
    own, shared = normal(300, seed=1), normal(700, seed=2) + 5.0
    bank = bank_of(references={b"a": own, None: shared})
    drifting = normal(400, seed=3)
    drifting[200:] += 4.0
    assert reason_of(bank, b"a", drifting) == (0, reason_of(bank, b"a", drifting)[1])
    assert "300 samples of this key in the reference file" in reason_of(bank, b"a", drifting)[1]
    assert "500 samples without a key" in reason_of(bank, b"b", drifting)[1]
    assert raised(run(bank, drifting[:150] + 5.0, bank.allocate(b"b"))) == []
    alone = bank_of(references={b"a": own})
    warming, reason = reason_of(alone, b"b", np.vstack((normal(N, seed=4), drifting)))
    assert warming == N
    assert "first 500 samples, since the reference file has none of it" in reason


def test_a_range_of_time_makes_the_reference() -> None:
    y = normal(1500, seed=8)
    y[:100] += 9.0  # before the range
    y[400:600] += 9.0  # behind it: alarms, if it was closed
    span = {"start_ms": ORIGIN + 100 * SECOND, "end_ms": ORIGIN + 399 * SECOND}
    warming, reason = reason_of(bank_of(**span), b"key", y)
    assert warming == 400
    assert "300 samples of the key from the configured time range." in reason
    full = {"start_ms": ORIGIN + 600 * SECOND, "end_ms": ORIGIN + 1300 * SECOND}
    y[1200:] += 9.0
    warming, reason = reason_of(bank_of(**full), b"key", y)
    assert warming == 1100
    assert "500 samples of the key" in reason
    few = {"start_ms": ORIGIN + 600 * SECOND, "end_ms": ORIGIN + 700 * SECOND}
    warming, reason = reason_of(bank_of(**few), b"key", y)
    assert warming == 1100
    assert "after its end, since too few lay in it" in reason


def test_a_range_that_is_past_for_a_key_leaves_it_its_first_samples() -> None:
    y = normal(800, seed=10)
    y[700:] += 5.0
    warming, reason = reason_of(bank_of(end_ms=ORIGIN), b"key", y, first=5000)
    assert warming == N
    assert "after its end" in reason


def test_dependent_references_state_no_rate() -> None:
    y = normal(N + 400, 1, seed=12)
    for t in range(1, len(y)):
        y[t] = 0.5 * y[t - 1] + y[t]
    y[N + 200 :] += 5.0
    alarm = raised(run(bank_of(1), y))[-1]
    assert alarm.guarantee == "none"
    assert "serially dependent" in alarm.guarantee_reason
    alarm = raised(run(bank_of(1, test=False), y))[-1]
    assert alarm.guarantee == "approximate"


def test_the_guarantee_is_worded_with_its_condition() -> None:
    y = normal(N + 300, seed=13)
    y[N + 100 :] += 3.0
    alarm = raised(run(bank_of(delta=0.1), y))[0]
    assert alarm.guarantee == "approximate"
    for words in (
        "If the reference and all later samples of the key are independent and identically distributed",
        "probability of about 0.9 over the reference",
        "t/10000",
        "measured, not proved",
        "rank mean are mostly ignored",
        "500",
    ):
        assert words in alarm.guarantee_reason


# --- settings ----------------------------------------------------------------------------------------------------


def test_another_reference_is_another_configuration() -> None:
    a, b = normal(300, seed=1), normal(300, seed=2)
    names = {
        bank_of(references=given).fingerprint
        for given in ({b"a": a}, {b"a": b}, {b"b": a}, {None: a}, {b"a": a, b"b": b}, None)
    }
    assert len(names) == 6
    assert digest_of({b"a": a, None: b}) == digest_of({None: b.copy(), b"a": a.copy()})
    assert bank_of(delta=0.1).fingerprint != bank_of().fingerprint
    assert bank_of(arl=77.0).fingerprint == bank_of().fingerprint


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dims": 0}, "dims"),
        ({"arl": 1.0}, r"arl is 1\.0"),
        ({"samples": 19}, r"20\.\.2000"),
        ({"samples": 2001}, r"20\.\.2000"),
        ({"samples": 20}, "too few for delta"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.5}, "delta"),
        ({"dead_time_ms": -1}, "dead_time_ms"),
        ({"start_ms": 5, "end_ms": 5}, "start must lie before the end"),
        ({"references": {b"a": np.zeros((300, 3))}}, r"of key 'a' has the shape \(300, 3\)"),
        ({"references": {None: np.zeros((30, 2))}}, "without a key has 30 samples, too few"),
        ({"references": {b"a": np.full((300, 2), np.nan)}}, "not finite"),
        ({"feature_names": ("a",)}, "feature_names"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bank_of(**settings)


def test_two_sides_are_refused() -> None:
    bank = bank_of()
    with pytest.raises(ValueError, match="own reference"):
        bank.update(np.array([bank.allocate(b"key")]), normal(1), normal(1), np.array([0]))


def test_the_row_holds_what_it_says() -> None:
    for dims, most in ((1, 17_600), (2, 22_500), (5, 34_400), (10, 57_000)):
        bank = ReferenceBank(dims, capacity=4)
        assert bank.bytes_per_key <= most
        assert bank.nbytes == 4 * bank.bytes_per_key
    long = bank_of(3, samples=2000)
    assert run(long, normal(2600, 3)).state[-1] == 1


def test_extreme_values_and_constants() -> None:
    y = normal(N + 1500, seed=9)
    y[100] = [1e300, -1e300]
    y[N + 700] = [-1.7e308, 5e-324]
    scores = run(bank_of(), y)
    assert np.isfinite(scores.evidence).all()
    assert np.isfinite(scores.log_ratio[N:]).all()
    still = np.full((N + 500, 2), 21.5)
    assert raised(run(bank_of(), still)) == []
    still[N + 200 :, 1] += 0.001
    alarm = raised(run(bank_of(), still))[0]
    assert 0 < alarm.seq - N - 200 <= 40
    assert alarm.features[0][0] == "f1"
