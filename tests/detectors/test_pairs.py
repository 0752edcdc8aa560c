"""The detector for explicit pairs: what it finds, what it says of it, and what it does afterwards."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from told_alarms import change, check_told

from kstream_worker.detectors import battery
from kstream_worker.detectors.before_after import signed_ranks
from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.pairs_state import bet_weights, column_weights, make_plan
from kstream_worker.detectors.sign_split import split_signs
from kstream_worker.numerics.jit import jit
from kstream_worker.records import Incident, Scores, Transition

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "det_pair_battery.json").read_text())
Matrix = NDArray[np.float64]

SECOND = 1000  # milliseconds between pairs
ORIGIN = 1_700_000_000_000
CHANGE = 1000


def normal_pairs(n: int, dims: int = 2, seed: int = 0) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dims)), rng.normal(size=(n, dims))


def run(bank: PairBank, x: Matrix, y: Matrix, slot: int | None = None, first: int = 0) -> Scores:
    slot = bank.allocate(b"key") if slot is None else slot
    times = ORIGIN + SECOND * (first + np.arange(len(x)))
    return bank.update(np.full(len(x), slot), x, y, times)


def raised(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "raised"]


@jit
def walk_battery(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    fixed: int,
    columns: int,
    out: np.ndarray,
    payoff: np.ndarray,
    statistic: np.ndarray,
    evidence: np.ndarray,
) -> None:
    """The battery alone, through the kernels of the bank; `out` and `statistic` are float64[n, .]."""
    n, dims = x.shape
    squares = np.zeros(columns)
    sx = np.zeros(columns)
    sy = np.zeros(columns)
    powers = np.zeros(columns, dtype=np.int64)
    current = np.zeros(statistic.shape[1])
    weight = 0.0
    for t in range(n):
        battery.fixed_scores(x[t], dims, True, sx)
        battery.fixed_scores(y[t], dims, True, sy)
        for k in range(columns):
            out[t, k] = sy[k] - sx[k]
        battery.payoffs(out[t], squares, weight, columns, payoff[t], powers)
        battery.remember(out[t], squares, columns)
        weight = battery.next_weight(weight)
        evidence[t] = battery.bet(current, payoff[t], weights, fixed, columns)
        statistic[t] = current


def battery_of(x: Matrix, y: Matrix) -> dict[str, Matrix]:
    plan = make_plan(x.shape[1], 4, 8)
    n = len(x)
    weights = bet_weights(plan)
    weights[plan.fixed :] = 0.0  # the golden battery leaves the learned half out
    difference, payoff = np.zeros((n, plan.columns)), np.zeros((n, plan.columns))
    statistic, evidence = np.zeros((n, plan.bets)), np.zeros(n)
    walk_battery(x, y, weights, plan.fixed, plan.columns, difference, payoff, statistic, evidence)
    stakes = len(battery.STAKES)
    plus = statistic[:, : stakes * plan.columns].reshape(n, stakes, plan.columns)[:, :, : plan.scores]
    minus = statistic[:, stakes * plan.columns :].reshape(n, stakes, plan.fixed)[:, :, : plan.scores]
    return {
        "D": difference[:, : plan.scores],
        "b": payoff[:, : plan.scores],
        "R": np.concatenate([plus, minus], axis=1),
        "battery": evidence,
    }


def test_battery_agrees_with_the_reference_vector() -> None:
    """Variant `corrected`: the mean squares are divided by the sum of their weights."""
    given, expected = GOLDEN["input"], GOLDEN["expected"]
    corrected, rtol = expected["corrected"], GOLDEN["rtol"]
    got = battery_of(np.array(given["x"]), np.array(given["x_prime"]))
    rows = given["rows_R"]

    def close(a: Any, b: Any) -> bool:
        a, b = np.asarray(a), np.asarray(b)
        return bool(np.max(np.abs(a - b)) <= rtol * max(1.0, float(np.max(np.abs(b)))))

    assert close(got["D"], expected["D"])
    assert close(got["b"][given["rows_rms_b"]], corrected["b"])
    assert close(got["R"].mean(axis=1)[rows], corrected["column_mean_R"])
    assert close(got["battery"][rows], corrected["battery"])
    assert close(got["R"][-1].T, corrected["R_final"])


def test_payoffs_are_exactly_antisymmetric() -> None:
    x, y = normal_pairs(300, 3)
    forth, back = battery_of(x, y), battery_of(y, x)
    assert np.array_equal(forth["b"], -back["b"])
    half = len(battery.STAKES)
    assert np.array_equal(forth["R"][:, :half], back["R"][:, half:])


@pytest.mark.parametrize("dims", [1, 3, 11])
def test_over_the_two_orders_of_a_pair_the_evidence_grows_by_one_in_the_mean(dims: int) -> None:
    """The martingale that the guarantee rests on, learned columns and weights included, whatever came before."""
    x, y = normal_pairs(300, dims)
    bank = PairBank(dims, arl=1e20, warmup=20, atoms=12)
    slot = bank.allocate(b"key")
    run(bank, x, y + 0.1, slot)
    plan, before = make_plan(dims, 12, 20), bank.snapshot(slot)
    weights = bet_weights(plan)
    R = bank._slots.floats[slot, plan.at_statistic : plan.at_statistic + plan.bets]
    stakes = len(battery.STAKES)
    plus = R[: stakes * plan.columns].reshape(stakes, plan.columns).sum(axis=0)
    minus = R[stakes * plan.columns :].reshape(stakes, plan.fixed).sum(axis=0)
    now = float(weights @ plus + weights[: plan.fixed] @ minus)
    forth = run(bank, x[:1], y[:1] + 2.0, slot).evidence[0]
    bank.restore(slot, before)
    back = run(bank, y[:1] + 2.0, x[:1], slot).evidence[0]
    assert forth != back
    assert 0.5 * (forth + back) == pytest.approx(now + 1.0, rel=1e-12)


@pytest.mark.parametrize("dims", [1, 2, 10, 11, 20])
def test_weights_sum_to_one(dims: int) -> None:
    weights = column_weights(make_plan(dims, 48, 200))
    assert weights.sum() == pytest.approx(1.0)
    assert weights[: dims + 1].sum() == pytest.approx(0.25 if dims <= 10 else 0.5)


def shifted(y: Matrix, by: float, feature: int = 0) -> Matrix:
    y = y.copy()
    y[CHANGE:, feature] += by
    return y


@pytest.mark.parametrize(("by", "direction"), [(1.0, "up"), (-1.0, "down"), (10.0, "up"), (-10.0, "down")])
def test_a_shift_is_found_named_and_dated(by: float, direction: str) -> None:
    x, y = normal_pairs(1400, 3)
    bank = PairBank(3, arl=1e5, feature_names=("a", "b", "c"))
    alarm = raised(run(bank, x, shifted(y, by, 1)))[0]
    assert CHANGE < alarm.seq < CHANGE + 120
    assert alarm.reason in {"b", "learned"}
    assert alarm.direction == direction
    assert alarm.features[0][0] == "b"
    assert sum(weight for _, weight in alarm.features) == pytest.approx(1.0)
    assert {name for name, _ in alarm.features} == {"a", "b", "c"}
    assert abs(alarm.change_seq - (CHANGE + 1)) <= 45
    assert alarm.change_time == ORIGIN + SECOND * (alarm.change_seq - 1)
    assert alarm.evidence >= alarm.threshold == 1e5
    assert alarm.guarantee == "exact_if_iid"
    assert "swapped" in alarm.guarantee_reason


def autoregression(rng: np.random.Generator, n: int, phi: float) -> Matrix:
    z = rng.normal(size=(n, 2))
    for t in range(1, n):
        z[t] += phi * z[t - 1]
    return z


@pytest.mark.parametrize("test", [True, False])
def test_sides_that_depend_on_their_past_state_no_rate(test: bool) -> None:
    rng = np.random.default_rng(11)
    x, y = autoregression(rng, 900, 0.6), autoregression(rng, 900, 0.6)
    y[600:] += 5.0
    alarm = raised(run(PairBank(2, arl=1e4, test=test), x, y))[-1]
    assert alarm.guarantee == ("none" if test else "exact_if_iid")
    assert ("depended on former ones" in alarm.guarantee_reason) == test


@pytest.mark.parametrize("how", ["alike", "drifting together", "in clusters", "apart", "held together", "heavy tails"])
def test_sides_that_may_be_swapped_given_the_past_keep_their_rate(how: str) -> None:
    """One in fifty would be called dependent: these are not."""
    rng = np.random.default_rng(5)
    n = 900
    x, y = normal_pairs(n, 2, seed=5)
    if how == "drifting together":
        common = autoregression(rng, n, 0.95)
        x, y = x + common, y + common
    elif how == "in clusters":
        size = np.exp(autoregression(rng, n, 0.95)[:, :1] / 2.0)
        x, y = size * x, size * y
    elif how == "apart":
        y = y + 3.0
    elif how == "held together":
        x, y = np.zeros((n, 2)), np.where(rng.random((n, 2)) < 0.3, rng.normal(size=(n, 2)), 0.0)
    elif how == "heavy tails":
        x, y = rng.standard_cauchy((n, 2)), rng.standard_cauchy((n, 2))
    y[600:] += 50.0
    assert raised(run(PairBank(2, arl=1e4), x, y))[0].guarantee == "exact_if_iid"


def test_a_change_of_variance_is_found() -> None:
    x, y = normal_pairs(1600, 2)
    y[CHANGE:] *= 2.0
    alarm = raised(run(PairBank(2, arl=1e5), x, y))[0]
    assert CHANGE < alarm.seq < CHANGE + 200
    assert alarm.reason in {"radius", "learned", "f0*f0", "f1*f1"}
    assert abs(alarm.change_seq - CHANGE) <= 40


def test_a_change_of_correlation_is_found_and_names_both_features() -> None:
    x, y = normal_pairs(1600, 3)
    y[CHANGE:, 2] = 0.8 * y[CHANGE:, 0] + 0.6 * y[CHANGE:, 2]
    alarm = raised(run(PairBank(3, arl=1e5), x, y))[0]
    assert CHANGE < alarm.seq < CHANGE + 300
    assert {name for name, _ in alarm.features[:2]} == {"f0", "f2"}


def test_common_drift_of_both_sides_is_no_change() -> None:
    x, y = normal_pairs(3000, 2)
    drift = np.linspace(0.0, 5.0, 3000)[:, None]
    assert not run(PairBank(2, arl=1e5), x + drift, y + drift).transitions


def test_a_constant_feature_that_moves_is_found() -> None:
    x, y = normal_pairs(1200, 2)
    x[:, 1] = y[:, 1] = 20.0
    y[CHANGE:, 1] = 20.01
    alarm = raised(run(PairBank(2, arl=1e5), x, y))[0]
    assert CHANGE < alarm.seq < CHANGE + 60
    assert alarm.features[0][0] == "f1"
    assert alarm.direction == "up"


def test_all_constant_pairs_raise_nothing() -> None:
    same = np.full((600, 2), 3.0)
    scores = run(PairBank(2, arl=100.0), same, same)
    assert not [t for t in scores.transitions if t.kind == "raised" and t.seq < 290]
    assert np.all(scores.log_ratio[200:290] == pytest.approx(0.0, abs=1e-6))


def test_rebase_warms_up_again_and_clears() -> None:
    """The reference side follows the step after the alarm: one alarm, one clearing, nothing more."""
    x, y = normal_pairs(3000, 2)
    y = shifted(y, 2.0)
    bank = PairBank(2, arl=1e5)
    slot = bank.allocate(b"key")
    first = run(bank, x, y, slot)
    alarm = raised(first)[0]
    bank.free(slot)
    slot = bank.allocate(b"key")
    x[alarm.seq :, 0] += 2.0
    scores = run(bank, x, y, slot)
    assert [t.kind for t in scores.transitions] == ["raised", "cleared"]
    cleared = scores.transitions[1]
    assert cleared.reason == "recovered"
    assert alarm.seq + 250 < cleared.seq < alarm.seq + 800
    assert cleared.incident == alarm.incident
    assert not bank.raised(slot)
    assert scores.state[alarm.row] == 1
    assert np.all(scores.state[alarm.row + 1 : alarm.row + 201] == 0)
    assert np.all(scores.state[alarm.row + 201 :] == 1)
    assert np.isnan(scores.log_ratio[alarm.row + 1 : alarm.row + 201]).all()


def test_a_lasting_difference_is_repeated_after_each_rearming_as_one_incident() -> None:
    x, y = normal_pairs(3000, 2)
    scores = run(PairBank(2, arl=1e5), x, shifted(y, 2.0))
    assert {t.kind for t in scores.transitions} == {"raised"}
    assert 2 <= len(scores.transitions) <= 2000 / 200
    first = scores.transitions[0]
    assert [t.incident for t in scores.transitions] == [
        Incident(first.seq, ORIGIN + SECOND * first.row, repeat) for repeat in range(len(scores.transitions))
    ]


@pytest.mark.parametrize("on_alarm", ["rebase", "hold"])
def test_dead_time_in_event_time(on_alarm: str) -> None:
    x, y = normal_pairs(2200, 2)
    bank = PairBank(2, arl=1e5, on_alarm=on_alarm, dead_time_ms=500 * SECOND)
    slot = bank.allocate(b"key")
    scores = run(bank, x, shifted(y, 2.0), slot)
    alarm, again = scores.transitions[:2]
    assert (alarm.kind, again.kind) == ("raised", "raised")
    held = slice(alarm.row + (201 if on_alarm == "rebase" else 1), alarm.row + 500)
    assert np.all(scores.state[held] == 2)
    assert np.all(scores.evidence[held] == 0.0)
    assert np.isfinite(scores.log_ratio[held]).all()
    assert np.all(scores.state[held.stop : again.row + 1] == 1)


def test_hold_keeps_what_was_learned_and_calls_the_guarantee_approximate() -> None:
    x, y = normal_pairs(2000, 2)
    y = shifted(y, 1.0)
    held = run(PairBank(2, arl=1e5, on_alarm="hold", dead_time_ms=100 * SECOND), x, y)
    assert [t.guarantee for t in held.transitions[:3]] == ["exact_if_iid", "approximate", "approximate"]
    assert not (held.state[200:] == 0).any()
    first, again = held.transitions[:2]
    assert held.divergence[again.row] > 0.05 > held.divergence[first.row]


def test_forget_owes_a_clearing_while_the_alarm_is_up() -> None:
    x, y = normal_pairs(1100, 2)
    bank = PairBank(2, arl=1e5)
    slot = bank.allocate(b"key")
    assert bank.forget(slot) is None
    run(bank, x, shifted(y, 3.0), slot)
    assert bank.raised(slot)
    owed = bank.forget(slot)
    assert owed is not None
    assert (owed.row, owed.kind, owed.reason, owed.slot, owed.seq) == (-1, "cleared", "forgotten", slot, 1100)
    assert owed.change_time == ORIGIN + SECOND * 1099
    assert bank.raised(slot)
    bank.free(slot)
    slot = bank.allocate(b"key")
    assert not bank.raised(slot)


# --- what an alarm says ------------------------------------------------------------------------------------------


def many_pairs(n: int, keys: int, dims: int, seed: int) -> tuple[Matrix, Matrix]:
    """float64[n, keys, d] of each side."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, keys, dims)), rng.normal(size=(n, keys, dims))


def run_keys(bank: PairBank, x: Matrix, y: Matrix) -> Scores:
    n, keys, dims = x.shape
    slots = np.array([bank.allocate(b"%d" % key) for key in range(keys)])
    times = np.repeat(ORIGIN + SECOND * np.arange(n), keys)
    return bank.update(np.tile(slots, n), x.reshape(-1, dims), y.reshape(-1, dims), times)


@pytest.mark.parametrize("kind", ["level", "spread", "dependence", "stuck"])
@pytest.mark.parametrize("common", [0.0, 1.5])
def test_alarms_are_explained_by_the_sides_of_the_last_pairs(kind: str, common: float) -> None:
    """Twenty keys in the units of their features, whose sides have a course in common or none."""
    keys, n = 20, CHANGE + 600
    x, y = many_pairs(n, keys, 3, seed=21)
    change(y[CHANGE:], kind)
    course = common * np.sin(np.arange(n) / 80.0)[:, None, None]
    x, y = ((side + course) * (1.0, 5.0, 0.1) + (0.0, 100.0, -7.0) for side in (x, y))
    if kind == "stuck":
        y[CHANGE:, :, 1] = y[CHANGE, :, 1]
    scores = run_keys(PairBank(3, arl=1e4, dead_time_ms=10**9), x, y)
    alarms = [one for one in raised(scores) if one.seq > CHANGE]
    told = check_told(alarms, kind, keys, CHANGE + 1)
    for alarm, one in zip(alarms, told, strict=True):
        assert sum(part.value for part in one.contributions) == pytest.approx(one.log_evidence)
        assert alarm.change_time == ORIGIN + SECOND * (alarm.change_seq - 1)
        assert one.change_time_high == ORIGIN + SECOND * (one.change_seq_high - 1)
        assert one.summaries[0].name == alarm.features[0][0]
        if alarm.seq - alarm.change_seq < 256:
            assert one.summaries[0].before[2] == one.summaries[0].after[2] == alarm.seq - alarm.change_seq + 1
    own = [one.summaries[0] for one in told if one.summaries[0].name == "f1"]
    sizes = {"level": (2.0, 9.0), "spread": (1.0, 12.0), "dependence": (-6.0, 6.0), "stuck": (-25.0, -2.5)}
    low, high = sizes[kind]
    assert low < float(np.median([part.size for part in own])) < high


def test_a_slight_difference_is_named_though_it_began_before_what_is_remembered() -> None:
    x, y = many_pairs(4000, 12, 2, seed=4)
    y[CHANGE:, :, 1] += 0.3
    found: dict[int, Transition] = {}
    for one in raised(run_keys(PairBank(2, arl=1e4, on_alarm="hold", dead_time_ms=10**9), x, y)):
        found.setdefault(one.slot, one)
    late = [one for one in found.values() if one.seq > CHANGE + 256]
    assert len(late) >= 6
    named = [one for one in late if (one.features[0][0], one.direction) == ("f1", "up")]
    assert len(named) >= len(late) - 1
    for one in named:
        told = one.explanation
        assert told is not None
        assert told.kind == "level"
        if told.change_seq_low is None:
            assert told.change_time_low is None
            assert one.change_seq <= told.change_seq_high


def test_nothing_is_told_of_pairs_from_before_a_rearming() -> None:
    x, y = normal_pairs(3000, 2)
    y = shifted(y, 2.0)
    alarms = raised(run(PairBank(2, arl=1e5), x, y))
    for before, again in pairwise(alarms):
        told = again.explanation
        assert told is not None
        assert told.change_seq_low is None
        assert told.summaries[0].after[2] <= again.seq - before.seq - 200


def test_the_likelihood_of_a_split_is_that_of_its_signs() -> None:
    differences = np.array([0.3, -0.2, 0.0, 1.0, 2.0, 1.5])
    found = np.empty(6)
    split_signs(differences, found)
    unit = 1.0 / 0.6745  # median of the five that differ
    b = np.tanh(differences / unit)
    for k in range(6):
        bets = [np.prod(1.0 + side * c * b[k:]) for c in battery.STAKES for side in (1.0, -1.0)]
        urn = 1.0
        counts = [0, 0]
        for d in differences[k:][differences[k:] != 0.0][::-1]:
            urn *= 2.0 * (0.5 + counts[int(d > 0.0)]) / (1.0 + sum(counts))
            counts[int(d > 0.0)] += 1
        assert found[k] == pytest.approx(np.log(0.5 * urn + 0.5 * np.mean(bets)))


def test_signed_ranks_are_those_of_scipy() -> None:
    from scipy.stats import wilcoxon

    differences = np.random.default_rng(1).normal(size=60).round(1) + 0.3
    z = wilcoxon(differences, method="asymptotic", correction=False, alternative="greater").zstatistic
    assert signed_ranks(differences) == pytest.approx(z, rel=1e-6)
    assert signed_ranks(np.zeros(5)) == 0.0


def test_the_row_holds_what_it_says() -> None:
    for dims, most in ((1, 44_700), (2, 47_900), (4, 54_200), (10, 196_600)):
        assert PairBank(dims, capacity=1).bytes_per_key <= most


def test_results_do_not_depend_on_the_cut() -> None:
    x, y = normal_pairs(2500, 2)
    y = shifted(y, 2.0)
    whole_bank, cut_bank = (PairBank(2, arl=1e4, dead_time_ms=300 * SECOND) for _ in range(2))
    whole = run(whole_bank, x, y)
    slot = cut_bank.allocate(b"key")
    parts, start = [], 0
    for size in (1, 199, 1, 800, 7, 13, 29, 50, 1, 1, 150, 300, 948):
        parts.append((start, run(cut_bank, x[start : start + size], y[start : start + size], slot, start)))
        start += size
    assert start == 2500
    for name in ("state", "seq", "log_ratio", "divergence", "evidence"):
        joined = np.concatenate([getattr(part, name) for _, part in parts])
        assert joined.tobytes() == getattr(whole, name).tobytes(), name
    moved = [(t.row + at, t.kind, t.evidence, t.features) for at, part in parts for t in part.transitions]
    assert moved == [(t.row, t.kind, t.evidence, t.features) for t in whole.transitions]
    assert len(moved) > 2
    assert cut_bank.snapshot(slot) == whole_bank.snapshot(0 if slot == 0 else slot)


def test_the_ratio_rises_where_the_live_side_is_denser() -> None:
    x, y = normal_pairs(4000, 1)
    y += 1.0
    bank = PairBank(1, on_alarm="hold", dead_time_ms=10**15)
    scores = run(bank, x, y)
    late = slice(2000, None)
    truth = np.exp(y[late, 0] - 0.5)  # q / p of N(1, 1) and N(0, 1)
    relative = np.log(truth / (0.9 + 0.1 * truth))
    assert np.corrcoef(scores.log_ratio[late], relative)[0, 1] > 0.9
    assert np.mean(np.abs(scores.log_ratio[late] - relative)) < 0.3
    assert 0.15 < scores.divergence[late].mean() < 0.6


def test_extreme_finite_input_stays_finite() -> None:
    x, y = normal_pairs(1500, 2)
    rng = np.random.default_rng(1)
    wild = np.array([1e300, -1e300, 1.7e308, -1.7e308, 5e-324, 0.0])
    for side in (x, y):
        rows = rng.integers(0, 1500, 300)
        side[rows, rng.integers(0, 2, 300)] = rng.choice(wild, 300)
    for bank in (PairBank(2, arl=1e20), PairBank(2, arl=1e20, warmup=8)):
        scores = run(bank, x, y)
        armed = scores.state == 1
        assert np.isfinite(scores.evidence).all()
        assert np.isfinite(scores.log_ratio[armed]).all()
        assert np.isfinite(scores.divergence[armed]).all()


def test_few_false_alarms_at_a_tiny_run_length() -> None:
    """At a stated 500 pairs, 40 keys of 1,000 armed pairs may raise 80 alarms in the mean, 125 with luck against it."""
    rng = np.random.default_rng(5)
    bank = PairBank(2, arl=500.0, capacity=40)
    slots = np.array([bank.allocate(b"%d" % k) for k in range(40)])
    n = 1200
    x, y = rng.standard_t(2, size=(2, 40 * n, 2))
    scores = bank.update(np.tile(slots, n), x, y, np.repeat(np.arange(n), 40))
    armed = int((scores.state == 1).sum())
    expected = armed / 500.0
    assert 0 < len(raised(scores)) <= expected + 5.0 * np.sqrt(expected)


def test_a_short_series_with_a_small_warmup() -> None:
    x, y = normal_pairs(90, 1, seed=3)
    y[50:] += 4.0
    alarm = raised(run(PairBank(1, arl=1000.0, warmup=20), x, y))[0]
    assert 50 < alarm.seq < 90
    assert abs(alarm.change_seq - 51) <= 5


def test_refused_input_changes_nothing() -> None:
    x, y = normal_pairs(300, 2)
    bank = PairBank(2)
    slot = bank.allocate(b"key")
    run(bank, x, y, slot)
    before = bank.snapshot(slot)
    bad = y.copy()
    bad[299, 1] = np.nan
    with pytest.raises(ValueError, match=r"y\[299, 1\] is nan"):
        run(bank, x, bad, slot)
    with pytest.raises(ValueError, match="x is missing"):
        bank.update(np.array([slot]), None, y[:1], np.array([0]))
    assert bank.snapshot(slot) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": 0}, "dims is 0"),
        ({"arl": 1.0}, "arl is 1.0"),
        ({"arl": float("inf")}, "arl is inf"),
        ({"warmup": 7}, "warmup is 7"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"atoms": 0}, "atoms is 0"),
        ({"on_alarm": "reset"}, "on_alarm is 'reset'"),
        ({"dead_time_ms": -1}, "dead_time_ms is -1"),
        ({"feature_names": ("a",)}, "1 names for 2 dimensions"),
        ({"feature_names": ("a", "a")}, "holds a name twice"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PairBank(**{"dims": 2, **arguments})


def test_a_snapshot_fits_another_run_length_but_no_other_warmup() -> None:
    x, y = normal_pairs(400, 2)
    bank = PairBank(2, arl=1e5)
    slot = bank.allocate(b"key")
    run(bank, x, y, slot)
    snapshot = bank.snapshot(slot)
    other = PairBank(2, arl=1e6)
    other.restore(other.allocate(b"key"), snapshot)
    third = PairBank(2, arl=1e5, warmup=100)
    slot = third.allocate(b"key")
    with pytest.raises(ValueError, match="configuration"):
        third.restore(slot, snapshot)
