"""Where the rank detector keeps the state of a key: sections of one row of floats, integers and shorts.

While a key warms up, its first samples lie in the section behind `union` and, where that is too small, in the bags;
once it is armed the same room holds the learned score, the bets and their runs. What must outlive a re-arming stands
before it. Numbers that no recursion needs in double precision are float32, two to an entry (`singles`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.bets import ONE_SIDED, TWO_SIDED
from kstream_worker.detectors.whitening import AR_COV, AR_ORDER, AR_TERMS
from kstream_worker.numerics.jit import inline

BLOCK = 25  # samples per block mean
MAX_PRODUCT_DIMS = 10  # products of coordinates are scores for 2 <= d <= 10


class Sizes(NamedTuple):
    """Room of the bags and of the learned score."""

    bag: int  # V: samples that coordinates, radius and products are ranked in
    learned: int  # H: samples that the learned score is ranked in; as many reference samples (T) train it
    slow: int  # block means
    atoms: int  # a multiple of 4: the estimator works on four at a time


PROFILES = {"default": Sizes(1000, 500, 500, 40), "compact": Sizes(250, 125, 125, 20)}

TWO_SIDED_LOCATORS = 5  # bets whose runs date a change: +b, -b, +u, -u, power of r
ONE_SIDED_LOCATORS = 2

WARMING, ARMED, RAISED = 0, 1, 2
NO_DEPENDENCE, AUTO, WHITEN = 0, 1, 2
NOTHING_LEFT, LEVELS_LEFT, SQUARES_LEFT = 0, 1, 2

# Columns of the integer row (column 0 is the random stream).
(
    PHASE,  # WARMING, ARMED, RAISED (armed, with an alarm up: no bets)
    SEQ,  # samples since the key was first seen
    CLOCK,  # running maximum of the key's event times, milliseconds
    UNTIL,  # event time before which an alarm is not cleared
    ALARM,  # 1 from `raised` to `cleared`
    HELD,  # 1 once an alarm was raised and the bags were kept
    COUNT,  # samples of the warm-up while warming; later since the warm-up's end, or since the last alarm was cleared
    WHITENED,  # 1 if autoregressions are taken out
    LEFT_OVER,  # dependence that the tests still found: in nothing, levels or squares
    V_SIZE,  # members of the bags
    H_SIZE,
    T_SIZE,
    S_SIZE,
    H_COUNT,  # samples ranked by the learned score
    T_COUNT,  # samples that trained it
    ATOM_COUNT,
    BEST,  # column of the largest value after the last sample
    BLOCK_TIME,  # event time of the first sample of the present block
    BLOCK_SUM,  # first of d sums over the present block, in steps
) = range(1, 20)

# Columns of the float row.
GAIN, DIVERGENCE, FADED, HEADER = range(4)


class Layout(NamedTuple):
    """Settings, sizes and offsets, in entries of the row they belong to. Passed to compiled code as it is."""

    dims: int
    warmup: int
    test: int  # first part of the warm-up: tests of dependence only
    fixed: int  # columns of fixed scores: coordinates, radius, products
    columns: int  # fixed, then d of block means, then the learned one
    bets: int
    locators: int
    dependence: int
    # rooms
    v_room: int
    h_room: int
    s_room: int
    atom_room: int
    # floats
    center: int
    scale: int
    raw_center: int
    raw_scale: int
    ring: int
    coef: int
    ar_cov: int
    union: int
    cov: int
    inverse: int  # float32
    weights: int
    duals: int  # float32
    atoms: int  # float32
    h_scores: int  # float32
    R: int  # float32
    values: int  # mean R of each column
    run_product: int  # float32
    run_seq: int  # uint32: the last 32 bits of the number of the run's first sample
    run_time: int
    floats: int
    # shorts
    v_bag: int
    v_rows: int
    h_bag: int
    t_ring: int
    s_bag: int
    shorts: int
    ints: int
    upward: int = 0  # 1: bets pay for high coordinates alone

    def table(self) -> NDArray[np.int64]:
        """The layout as kernels take it: `plan[AT_R]` and the like."""
        return np.array(self, dtype=np.int64)


# Entries of the table, in the order of the fields.
(
    DIMS,
    WARMUP,
    TEST,
    FIXED,
    COLUMNS,
    BETS,
    LOCATORS,
    DEPENDENCE,
    V_ROOM,
    H_ROOM,
    S_ROOM,
    ATOM_ROOM,
    AT_CENTER,
    AT_SCALE,
    AT_RAW_CENTER,
    AT_RAW_SCALE,
    AT_RING,
    AT_COEF,
    AT_AR_COV,
    AT_UNION,
    AT_COV,
    AT_INVERSE,
    AT_WEIGHTS,
    AT_DUALS,
    AT_ATOMS,
    AT_H_SCORES,
    AT_R,
    AT_VALUES,
    AT_RUN_PRODUCT,
    AT_RUN_SEQ,
    AT_RUN_TIME,
    FLOATS,
    AT_V_BAG,
    V_ROWS,
    AT_H_BAG,
    AT_T_RING,
    AT_S_BAG,
    SHORTS,
    INTS,
    UPWARD,
) = range(40)


# Rows of the scratch matrix.
(
    Z,  # [d] the sample in units of scale
    X,  # [d] a reference sample, or the innovations of the sample
    KERNEL,  # [h_room] kernel values
    PHI_Z,  # [atom_room] whitened features of the sample
    PHI_X,  # [atom_room] and of the reference sample
    PZ,  # [atom_room] scratch of recursive least squares
    PX,
    GAINS,  # [14] multipliers
    LOCATED,  # [5] those whose runs are followed
    UNITS,  # first of d rows: [h_room] the bag in units of scale
) = range(10)


@inline
def singles(row: np.ndarray, at: int, n: int) -> np.ndarray:
    """float32[n], a view of the section that begins at entry `at` of a row of floats."""
    return row[at : at + (n + 1) // 2].view(np.float32)[:n]


def make_layout(dims: int, warmup: int, dependence: int, profile: str = "default") -> Layout:
    """Lay out the row of a key of `dims` features."""
    return _lay_out(dims, warmup, dependence, profile)[0]


def bytes_by_part(dims: int, warmup: int, dependence: int, profile: str = "default") -> dict[str, int]:
    """Bytes of a key's row by what they are for; their sum is the size of the row."""
    return _lay_out(dims, warmup, dependence, profile)[1]


def _lay_out(dims: int, warmup: int, dependence: int, profile: str) -> tuple[Layout, dict[str, int]]:
    sizes = PROFILES[profile]
    test = 0 if dependence == 0 else warmup * 2 // 3
    radius = 1 if dims > 1 else 0
    fixed = dims + radius + (dims * (dims - 1) // 2 if 2 <= dims <= MAX_PRODUCT_DIMS else 0)
    two_sided = fixed + dims
    bets = two_sided * TWO_SIDED + ONE_SIDED
    locators = two_sided * TWO_SIDED_LOCATORS + ONE_SIDED_LOCATORS
    parts: dict[str, int] = {}
    at = Cursor(8, parts)
    at.take(HEADER, "counters")
    whitening = 0 if dependence == 0 else dims
    center, scale = at.take(dims, "scales"), at.take(dims, "scales")
    raw_center, raw_scale = at.take(whitening, "scales"), at.take(whitening, "scales")
    ring, coef = at.take(whitening * AR_ORDER, "autoregressions"), at.take(whitening * AR_TERMS, "autoregressions")
    ar_cov = at.take(whitening * AR_COV, "autoregressions")
    union = at.here
    packed = sizes.atoms * (sizes.atoms + 1) // 2
    cov, inverse = at.take(packed, "learned score"), at.take_singles(packed, "learned score")
    weights, duals = at.take(sizes.atoms, "learned score"), at.take_singles(sizes.atoms, "learned score")
    atoms = at.take_singles(sizes.atoms * dims, "learned score")
    h_scores = at.take_singles(sizes.learned, "learned bag")
    R, values = at.take_singles(bets, "bets"), at.take(two_sided + 1, "bets")
    run_product, run_seq = at.take_singles(locators, "runs of bets"), at.take_singles(locators, "runs of bets")
    run_time = at.take(locators, "runs of bets")
    bags = Cursor(2, parts)
    v_rows = dims + radius
    v_bag, h_bag = bags.take(v_rows * sizes.bag, "bag"), bags.take(dims * sizes.learned, "learned bag")
    t_ring, s_bag = bags.take(dims * sizes.learned, "reference ring"), bags.take(dims * sizes.slow, "bag of means")
    bags.take(-bags.here % 4, "bag of means")  # the warm-up's samples may lie there, as float64
    more = warmup * dims - (at.here - union) - bags.here // 4
    at.take(max(0, more), "warm-up beyond the rest")
    ints = BLOCK_SUM + dims
    parts["counters"] += 8 * ints
    layout = Layout(
        dims=dims,
        warmup=warmup,
        test=test,
        fixed=fixed,
        columns=two_sided + 1,
        bets=bets,
        locators=locators,
        dependence=dependence,
        v_room=sizes.bag,
        h_room=sizes.learned,
        s_room=sizes.slow,
        atom_room=sizes.atoms,
        center=center,
        scale=scale,
        raw_center=raw_center,
        raw_scale=raw_scale,
        ring=ring,
        coef=coef,
        ar_cov=ar_cov,
        union=union,
        cov=cov,
        inverse=inverse,
        weights=weights,
        duals=duals,
        atoms=atoms,
        h_scores=h_scores,
        R=R,
        values=values,
        run_product=run_product,
        run_seq=run_seq,
        run_time=run_time,
        floats=at.here,
        v_bag=v_bag,
        v_rows=v_rows,
        h_bag=h_bag,
        t_ring=t_ring,
        s_bag=s_bag,
        shorts=bags.here,
        ints=ints,
    )
    return layout, parts


@inline
def warmup_room(row: np.ndarray, shorts: np.ndarray, entry: int, plan: np.ndarray) -> tuple[np.ndarray, int]:
    """The array and the place in it of entry `entry` of the warm-up's samples (sample by sample, d entries each)."""
    at = plan[AT_UNION] + entry
    if at < plan[FLOATS]:
        return row, at
    return shorts.view(np.float64), at - plan[FLOATS]


def column_weights(layout: Layout) -> NDArray[np.float64]:
    """Weights of all columns, float64[columns], sum 1.

    Nine tenths: as `sample_weights`. One tenth: block means. Where only high coordinates pay, all of the nine tenths is
    theirs, as any other score would pay for low ones too; 6 of a column's 14 bets are made then, which the weights make
    up for.
    """
    dims = layout.dims
    if layout.upward:
        weights = np.zeros(layout.columns)
        weights[:dims] = 0.9 / dims
        weights[layout.fixed : layout.fixed + dims] = 0.1 / dims
        return weights * (TWO_SIDED / ONE_SIDED)
    own = sample_weights(layout, 0.9)
    return np.concatenate([own[:-1], np.full(dims, 0.1 / dims), own[-1:]])


def sample_weights(layout: Layout, share: float = 1.0) -> NDArray[np.float64]:
    """Weights of the columns that score single samples, fixed ones, then the learned one: float64[fixed + 1].

    Their sum is `share`.

    Coordinates and radius one half, products and the learned score a quarter each; without products three quarters
    and one quarter.
    """
    own = layout.v_rows
    products = layout.fixed - own
    weights = np.empty(layout.fixed + 1)
    weights[:own] = share * (0.5 if products else 0.75) / own
    weights[own : layout.fixed] = share * 0.25 / max(1, products)
    weights[-1] = share * 0.25
    return weights


def make_scratch(layout: Layout) -> tuple[NDArray[np.int16], NDArray[np.float64], NDArray[np.int64]]:
    """Room that compiled code works in: the sample in steps with its radius, the matrix of the rows above, integers."""
    return (
        np.zeros(layout.dims + 1, dtype=np.int16),
        np.zeros((UNITS + layout.dims, max(layout.h_room, layout.dims))),
        np.zeros(layout.atom_room, dtype=np.int64),
    )


class Cursor:
    """Hands out neighbouring sections of a row, and adds up their bytes by part."""

    def __init__(self, entry_bytes: int, parts: dict[str, int]) -> None:
        self._bytes = entry_bytes
        self._parts = parts
        self.here = 0

    def take(self, size: int, part: str) -> int:
        """The start of a section of `size` entries."""
        start = self.here
        self.here += size
        self._parts[part] = self._parts.get(part, 0) + self._bytes * size
        return start

    def take_singles(self, size: int, part: str) -> int:
        """The start of a section of `size` entries of half the size; `singles` gives its view."""
        return self.take((size + 1) // 2, part)
