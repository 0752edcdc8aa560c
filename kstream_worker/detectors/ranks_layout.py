"""Where the rank detector keeps the state of a key: sections of one row of floats, integers and shorts.

While a key warms up, the section behind `union` holds its first samples; once it is armed the same room holds the
learned score, the bets and their runs. What must outlive a re-arming stands before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.bets import ONE_SIDED, TWO_SIDED
from kstream_worker.detectors.whitening import AR_COV, AR_ORDER, AR_TERMS

BAG = 1000  # V: samples that coordinates, radius and products are ranked in
LEARNED_BAG = 500  # H: samples that the learned score is ranked in; as many reference samples (T) train it
SLOW_BAG = 500  # block means
BLOCK = 25  # samples per block mean
ATOMS = 48  # a multiple of 4: the estimators work on four at a time
MAX_PRODUCT_DIMS = 10  # products of coordinates are scores for 2 <= d <= 10

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
    inverse: int
    weights: int
    duals: int
    atoms: int
    h_scores: int
    R: int
    values: int  # mean R of each column
    run_product: int
    run_seq: int
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
) = range(35)


# Rows of the scratch matrix.
(
    Z,  # [d] the sample in units of scale
    X,  # [d] a reference sample, or the innovations of the sample
    KERNEL,  # [LEARNED_BAG] kernel values
    PHI_Z,  # [ATOMS] whitened features of the sample
    PHI_X,  # [ATOMS] and of the reference sample
    PZ,  # [ATOMS] scratch of recursive least squares
    PX,
    GAINS,  # [14] multipliers
    LOCATED,  # [5] those whose runs are followed
    UNITS,  # first of d rows: [LEARNED_BAG] the bag in units of scale
) = range(10)


def make_layout(dims: int, warmup: int, dependence: int) -> Layout:
    """Lay out the row of a key of `dims` features."""
    test = 0 if dependence == 0 else warmup * 2 // 3
    radius = 1 if dims > 1 else 0
    fixed = dims + radius + (dims * (dims - 1) // 2 if 2 <= dims <= MAX_PRODUCT_DIMS else 0)
    two_sided = fixed + dims
    bets = two_sided * TWO_SIDED + ONE_SIDED
    locators = two_sided * TWO_SIDED_LOCATORS + ONE_SIDED_LOCATORS
    at = Cursor(HEADER)
    whitening = 0 if dependence == 0 else dims
    center, scale = at.take(dims), at.take(dims)
    raw_center, raw_scale = at.take(whitening), at.take(whitening)
    ring, coef = at.take(whitening * AR_ORDER), at.take(whitening * AR_TERMS)
    ar_cov = at.take(whitening * AR_COV)
    union = at.take(0)
    packed = ATOMS * (ATOMS + 1) // 2
    cov, inverse = at.take(packed), at.take(packed)
    weights, duals, atoms = at.take(ATOMS), at.take(ATOMS), at.take(ATOMS * dims)
    h_scores, R, values = at.take(LEARNED_BAG), at.take(bets), at.take(two_sided + 1)
    run_product, run_seq, run_time = at.take(locators), at.take(locators), at.take(locators)
    floats = max(at.take(0), union + warmup * dims)
    at = Cursor(0)
    v_rows = dims + radius
    v_bag, h_bag = at.take(v_rows * BAG), at.take(dims * LEARNED_BAG)
    t_ring, s_bag = at.take(dims * LEARNED_BAG), at.take(dims * SLOW_BAG)
    return Layout(
        dims=dims,
        warmup=warmup,
        test=test,
        fixed=fixed,
        columns=two_sided + 1,
        bets=bets,
        locators=locators,
        dependence=dependence,
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
        floats=floats,
        v_bag=v_bag,
        v_rows=v_rows,
        h_bag=h_bag,
        t_ring=t_ring,
        s_bag=s_bag,
        shorts=at.take(0),
        ints=BLOCK_SUM + dims,
    )


def column_weights(layout: Layout) -> NDArray[np.float64]:
    """Weights of all columns, float64[columns], sum 1.

    Nine tenths: coordinates and radius one half, products and the learned score a quarter each (without products three
    quarters and one quarter). One tenth: block means.
    """
    dims = layout.dims
    own = layout.v_rows
    products = layout.fixed - own
    weights = np.empty(layout.columns)
    weights[:own] = 0.9 * (0.5 if products else 0.75) / own
    weights[own : layout.fixed] = 0.9 * 0.25 / max(1, products)
    weights[layout.fixed : layout.fixed + dims] = 0.1 / dims
    weights[-1] = 0.9 * 0.25
    return weights


def make_scratch(layout: Layout) -> tuple[NDArray[np.int16], NDArray[np.float64], NDArray[np.int64]]:
    """Room that compiled code works in: the sample in steps with its radius, the matrix of the rows above, integers."""
    return (
        np.zeros(layout.dims + 1, dtype=np.int16),
        np.zeros((UNITS + layout.dims, LEARNED_BAG)),
        np.zeros(ATOMS, dtype=np.int64),
    )


class Cursor:
    """Hands out neighbouring sections."""

    def __init__(self, start: int) -> None:
        self._next = start

    def take(self, size: int) -> int:
        """The start of a section of `size` entries."""
        start = self._next
        self._next += size
        return start
