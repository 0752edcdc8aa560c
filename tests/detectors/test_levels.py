"""Bets on the level of features that return to it slowly: which have them, what they find, and what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.processes import PROCESSES
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import LEVEL_BETS, LEVEL_HEADER, LEVEL_TERMS, PERSISTENT
from kstream_worker.detectors.ranks_levels import NEXT, RENEWED, SEEN, STAKE, USED
from kstream_worker.detectors.ranks_rows import column_weights, make_layout
from kstream_worker.records import Scores, Transition

Cube = NDArray[np.float64]


def series(name: str, n: int, keys: int, dims: int = 2, seed: int = 0) -> Cube:
    (_, y), *_ = PROCESSES[name].chunks(seed, keys, dims, n, n)
    return y


def bank_of(keys: int, dims: int = 2, **settings: Any) -> tuple[RankBank, NDArray[np.int64]]:
    bank = RankBank(dims, **{"arl": 10_000.0, "capacity": keys, **settings})
    return bank, np.array([bank.allocate(b"%d" % k) for k in range(keys)])


def feed(bank: RankBank, slots: NDArray[np.int64], y: Cube, first: int = 0) -> Scores:
    n, keys, d = y.shape
    times = 60_000 * np.repeat(first + np.arange(n), keys)
    return bank.update(np.tile(slots, n), None, y.reshape(-1, d), times)


def levels_of(bank: RankBank, slot: int) -> NDArray[np.float64]:
    at = bank._layout.levels
    levels: NDArray[np.float64] = bank._slots.floats[slot, at : at + 4].copy()
    return levels


def reached(bank: RankBank, slot: int) -> NDArray[np.float32]:
    """The bets on levels."""
    layout = bank._layout
    R = bank._slots.floats[slot, layout.R :].view(np.float32)
    bets: NDArray[np.float32] = R[layout.R_level : layout.R_level + LEVEL_BETS * layout.level_count].copy()
    return bets


def raised(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "raised"]


@pytest.mark.parametrize(
    ("name", "count"), [("iid", 0), ("AR .1", 0), ("AR .6", 2), ("AR .9", 2), ("random walk", 0), ("held .5", 0)]
)
def test_who_has_them(name: str, count: int) -> None:
    bank, slots = bank_of(5, arl=1e20)
    feed(bank, slots, series(name, 1_200, 5))
    found = [int(levels_of(bank, slot)[PERSISTENT]) for slot in slots.tolist()]
    assert sorted(found)[2] == count  # the median
    untaught, plain = bank_of(1, dependence="none")
    feed(untaught, plain, series(name, 300, 1))
    assert untaught._layout.level_count == 0


def test_they_share_half_of_the_weight() -> None:
    layout = make_layout(3, 600, 1)
    weights = column_weights(layout)
    assert weights[: layout.level].sum() == pytest.approx(1.0)
    assert weights[layout.level :].tolist() == [0.5] * 3
    assert layout.level + 3 == layout.columns == len(weights)


def test_a_lasting_shift_is_found_named_and_dated() -> None:
    bank, slots = bank_of(40)
    y = series("AR .9", 3_200, 40, seed=5)
    y[2_000:, :, 1] -= 1.0
    first: dict[int, Transition] = {}
    for t in raised(feed(bank, slots, y)):
        first.setdefault(t.slot, t)
    after = [t for t in first.values() if t.seq > 2_000]
    early = len(first) - len(after)
    assert early <= 8  # 1,400 samples at a stated 10,000: at most 14 % of 40 in the mean
    delays = np.array([t.seq - 2_000 for t in after] + [1_201] * (40 - len(first)))
    assert np.median(delays) <= 330
    named = [t for t in after if t.reason == "level(f1)"]
    assert len(named) > len(after) / 2
    assert sum(t.features[0][0] == "f1" for t in named) > 0.8 * len(named)
    assert sum(t.direction == "down" for t in named) > 0.7 * len(named)
    assert {t.guarantee for t in named} == {"approximate"}


def test_coefficients_in_use_are_a_block_old() -> None:
    bank, slots = bank_of(1, arl=1e20)
    y = series("AR .9", 2_000, 1)
    feed(bank, slots, y[:600])
    assert levels_of(bank, 0)[[SEEN, USED, NEXT]].tolist() == [600, 600, 600]
    for end in (900, 1_500, 2_000):
        feed(bank, slots, y[int(levels_of(bank, 0)[SEEN]) : end], int(levels_of(bank, 0)[SEEN]))
        seen, used, following = levels_of(bank, 0)[[SEEN, USED, NEXT]].tolist()
        assert seen == end
        assert seen - following < RENEWED
        assert following - used == RENEWED


def test_under_no_change_the_mean_of_a_bet_is_no_larger_than_its_samples() -> None:
    """R less the samples credited is a martingale at most, as far as the level is known."""
    bank, slots = bank_of(300, dims=1, arl=1e20)
    feed(bank, slots, series("AR .9", 1_000, 300, dims=1, seed=9))
    bets = np.array([reached(bank, slot) for slot in slots.tolist() if levels_of(bank, slot)[PERSISTENT] > 0])
    assert len(bets) > 250
    assert bets.mean() < 400


def test_the_rarer_alarms_are_to_be_the_less_a_bet_pays() -> None:
    y = series("AR .9", 2_000, 1)
    y[1_000:] += 1.0
    total = []
    for arl in (1e4, 1e8, 1e12):
        bank, slots = bank_of(1, arl=arl, escalation=1.0)
        feed(bank, slots, y[:1_200])
        total.append(float(reached(bank, 0).max()))
    assert total[0] > total[1] > total[2]


def test_a_held_alarm_ends_them_and_a_new_warm_up_begins_them() -> None:
    y = series("AR .9", 2_000, 1)
    y[1_000:] += 20.0
    for on_alarm, count in (("hold", 0), ("rebase", 2)):
        bank, slots = bank_of(1, on_alarm=on_alarm, arl=1e5)
        assert [t.kind for t in feed(bank, slots, y).transitions][:2] == ["raised", "cleared"]
        assert levels_of(bank, 0)[PERSISTENT] == count


def test_bits_do_not_depend_on_the_cut() -> None:
    y = series("AR .9", 1_500, 3)
    rows = []
    for size in (1_500, 137):
        bank, slots = bank_of(3)
        for at in range(0, 1_500, size):
            feed(bank, slots, y[at : at + size], at)
        rows.append(bank._slots.floats[slots].tobytes())
    assert rows[0] == rows[1]


def test_only_upwards() -> None:
    y = series("AR .9", 2_000, 1)
    bank, slots = bank_of(1, alternative="greater", arl=1e20)
    feed(bank, slots, y)
    assert levels_of(bank, 0)[PERSISTENT] == 2
    up, down = reached(bank, 0).reshape(2, 2).T
    assert (up > 0.0).all()
    assert (down == 0.0).all()


def test_a_long_tail_on_one_side_is_no_shift() -> None:
    """Innovations are lognormal: what lies within some spreads of their mean has another one."""
    rng = np.random.default_rng(3)
    y = np.exp(rng.normal(size=(60_200, 8, 2))) - np.exp(0.5)
    for i in range(1, len(y)):
        y[i] += 0.9 * y[i - 1]
    bank, slots = bank_of(8, arl=100_000.0)
    found = raised(feed(bank, slots, y[200:]))
    assert sum(t.reason.startswith("level") for t in found) <= 3  # of 4.8 stated; within +-4 for every stake: 11


def test_a_range_that_moves_takes_the_stake() -> None:
    bank, slots = bank_of(1, arl=1e20)
    y = series("AR .9", 3_000, 1)
    y[1_000:, 0, 1] += np.minimum(0.02 * np.arange(2_000), 33.0)
    feed(bank, slots, y)
    layout = bank._layout
    own = bank._slots.floats[slots[0], layout.levels + LEVEL_HEADER :].view(np.float32)[: 2 * LEVEL_TERMS]
    assert (own.reshape(2, LEVEL_TERMS)[:, STAKE] > 0.0).tolist() == [True, False]
