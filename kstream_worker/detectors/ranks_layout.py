"""Where the rank detector keeps the state of a key: sections of one row of floats, integers and shorts.

While a key warms up, its first samples lie in the section behind `union` and, where that is too small, in the bags;
once it is armed the same room holds the learned score, the bets and their runs. What must outlive a re-arming stands
before it. Numbers that no recursion needs in double precision are float32, two to an entry (`singles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.numerics.jit import inline

BLOCK = 25  # samples per block mean
MAX_PRODUCT_DIMS = 10  # products of coordinates are scores for 2 <= d <= 10


class Sizes(NamedTuple):
    """Room of the bags and of the learned score."""

    bag: int  # V: samples that coordinates, radius and products are ranked in
    learned: int  # H: samples that the learned score is ranked in; as many reference samples (T) train it
    slow: int  # block means
    atoms: int  # a multiple of 4: the estimator works on four at a time
    history: int  # last samples that an alarm is explained from; half of them (64 at least) from five features on
    kept: int  # older ones


class Options(NamedTuple):
    """Settings beside the dimensions and the warm-up."""

    profile: str = "default"
    spikes: bool = True
    transform: str = "auto"
    explained: bool = True
    periods: tuple[int, ...] = ()  # of seasons, milliseconds
    season_auto: bool = False  # they are taken out once they were found


HARMONICS = 3  # of each period
TERMS_PER_PERIOD = 2 * HARMONICS
MAX_PERIODS = 3
SLOTS_PER_PERIOD = 24  # of the shortest period
SEASON_SLOTS = 504  # slots in which `auto` looks for seasons: three weeks of hours
AUTO_PERIODS_MS = (86_400_000, 604_800_000)

DEFAULTS = Options()
ROOT_NONE, ROOT_AUTO, ROOT_ALL = range(3)
TRANSFORMS = {"none": ROOT_NONE, "auto": ROOT_AUTO, "sqrt": ROOT_ALL}
SPIKE_WEIGHT = 0.2
HIDDEN_WEIGHT = 0.1

PROFILES = {"default": Sizes(1000, 500, 500, 40, 256, 96), "compact": Sizes(250, 125, 125, 20, 64, 48)}
SHORTEST_HISTORY = 64

# Candidates of the column that picks its score (`ranks_hidden`).
ODD_ODD, EVEN_ODD, EVEN_EVEN, ODD_ODD_ODD = range(4)
MAX_TRIPLE_DIMS = 5
MAX_HIDDEN = 512

SPIKE_BETS = 3
TAIL_ENTRIES = 5
LEVEL_BETS = 2
LEVEL_HEADER, LEVEL_TERMS = 4, 20  # of columns of levels: numbers for all, and of each feature
PERSISTENT = 0  # features whose level is bet on
LEVEL_WEIGHT = 0.5  # of all columns of levels together, where there are such features
FACTORS = 8  # on bets: of b's four stakes, of u's two, of the two powers

TWO_SIDED_LOCATORS = 5  # bets whose runs date a change: +b, -b, +u, -u, power of r
ONE_SIDED_LOCATORS = 2

WARMING, ARMED, RAISED = 0, 1, 2
NO_DEPENDENCE, AUTO, WHITEN, THIN, BLOCKS = range(5)
STATIONARY_SO_FAR, NOT_STATIONARY, TOLD = range(3)
EVERY, CHANGES, THINNED, MEANS = range(4)  # which samples are ranked
NOTHING_LEFT, LEVELS_LEFT, SQUARES_LEFT = 0, 1, 2
LEFT_IN = 1 << 40  # of SEASON_TESTED: a season was found, and is left in

# Columns of the integer row (column 0 is the random stream).
(
    PHASE,  # WARMING, ARMED, RAISED (no bets before UNTIL: of an alarm, or until bags hold enough of a season)
    SEQ,  # samples since the key was first seen
    CLOCK,  # running maximum of the key's event times, milliseconds
    UNTIL,  # event time before which there are no bets, and an alarm is not cleared for another regime
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
    FAIR_AT,  # samples of the present block of payoffs
    FAIR_BLOCKS,  # blocks in the sums of squares
    FAIR_FORMER,  # and in those that are used next
    FAIR_NEXT,  # number of blocks at which they are
    FAIR,  # 1 if any payoff is taken to vary more than independent ones do
    KEEPING,  # which samples are ranked
    STRIDE,  # samples of which one at least is ranked, where not all are
    WAITED,  # samples since the last one that is ranked
    VOLATILE,  # features whose innovations are divided by a predicted size
    UNIT_ROOTS,  # features in which a unit root was not rejected
    NEED,  # samples that the warm-up needs, once it is known that not all are ranked; 0 before
    FIXED_SEQ,  # number of the sample up to which the tests of each kind are credited
    LEARNED_SEQ,
    MEANS_SEQ,
    ATOM_COUNT,
    PICKED,  # candidate, and which way it has moved
    PICKED_SIDE,
    SEASONS,  # bit p: period p is taken out; seasons outlive alarms
    SEASON_STARTED,  # 1 once its units are fixed
    SEASON_FIRST,  # civil time of the first sample, milliseconds, later by the gaps of a period or more
    SEASON_TESTED,  # slots that had been seen when seasons were last tested for; LEFT_IN: never again
    SLOT,  # the present slot, and its samples
    SLOT_N,
    SLOT_LATEST,  # newest slot of the history of seasons
    RESTLESS,  # alarms in a row, each soon after an arming
    STATIONARY,  # STATIONARY_SO_FAR, NOT_STATIONARY, or TOLD, once that was published
    BEST,  # column of the largest value after the last sample
    ALARM_TIME,  # event time of the last alarm, from which its escalation decays
    WARM_TIME,  # event time of the first sample of the present, or last, warm-up
    WARM_SEQ,  # number of the first sample of the last warm-up
    STEPS_SEQ,  # number of the sample before the first that was bet on since the key was armed, or armed again
    KEPT_SIZE,  # older samples that are remembered
    INCIDENT,  # first of `alarms.INCIDENT_INTS`
    _,
    _,
    _,
    _,
    LEAD,  # 1 + the score by which the new regime shows most; 0: none, its end is not looked for
    SIDE,  # to which it moved, 1 or -1
    STRETCH,  # samples per test of that score
    STRETCH_N,  # of the present one
    FIRST_NEW,  # number of the first sample that has changed
    DUE,  # number of the sample at which the lead is sought again; 0: not
    SETTLING,  # 1 from a recovery on while the bags may hold the regime that is over
    BLOCK_TIME,  # event time of the first sample of the present block
    BLOCK_SUM,  # first of d sums over the present block, in steps
) = range(1, 62)

# Columns of the float row; the first OUTLIVING stay when all else is forgotten, and so do seasons, behind HEADER.
(
    RATE,  # samples per day in the last warm-up; 0 before, inf where its event times do not differ
    ESCALATION,  # natural logarithm of the factor on the threshold right after the last alarm
    MARGIN,  # what the lead's payoff must come below, see `ranks_recovery`
    STRETCH_SUM,  # of its payoff
    BACK,  # statistic of the bets that it has
    MIDDLE_1,  # medians of the lead's features before the change
    MIDDLE_2,
    GAIN,
    DIVERGENCE,
    FADED,
    LAST_RATIO,  # log ratio of the last sample that was ranked
    HEADER,
) = range(12)
OUTLIVING = 7


class Layout(NamedTuple):
    """Settings, sizes and offsets, in entries of the row they belong to. Passed to compiled code as it is."""

    dims: int
    warmup: int
    fixed: int  # columns of fixed scores: coordinates, radius, products
    columns: int  # fixed, d of block means, the learned one, sizes of single samples, the pick, levels
    bets: int
    locators: int
    dependence: int
    transform: int
    learned: int  # its column
    spikes: int  # first column of sizes
    spike_count: int  # d or 0
    hidden: int  # the column that picks its score, where there are candidates
    hidden_count: int  # of them
    level: int  # first column of levels
    level_count: int  # d, or 0 where nothing is whitened
    payoffs: int  # scores of single samples whose payoffs are watched: fixed, learned, the pick; two payoffs each
    # places of their bets and runs, counted as `bets` and `locators` are
    R_learned: int
    R_spikes: int
    R_hidden: int
    R_level: int
    run_learned: int
    run_spikes: int
    run_hidden: int
    # rooms
    v_room: int
    h_room: int
    s_room: int
    atom_room: int
    length: int  # of the history, 0 where alarms are not explained
    kept_room: int
    period: int  # milliseconds; 1 where there is none
    period_2: int
    period_3: int
    periods: int
    season_auto: int  # 1: periods are in use once they were found
    season_terms: int
    slot_ms: int
    # floats
    season_center: int
    season_scale: int
    season_cov: int
    season_coef: int
    slot: int
    center: int
    scale: int
    raw_center: int
    raw_scale: int
    ring: int
    coef: int
    ar_cov: int
    off: int  # samples in a row of each feature outside the range of its autoregression
    volatility: int
    last: int  # the last sample that was ranked, or the mean of the present block
    held: int  # 1.0 for each feature whose values are held
    origin: int
    history: int  # float32, relative to the origin
    kept: int  # float32, the same of older samples
    union: int
    cov: int
    inverse: int  # float32
    weights: int
    duals: int  # float32
    atoms: int  # float32
    h_scores: int  # float32
    tails: int  # float32
    short_means: int  # float32
    long_means: int  # float32
    R: int  # float32
    levels: int
    values: int  # mean R of each column
    fair_sums: int  # float32: of payoffs over the present block
    fair_squares: int  # float32: of such sums, over blocks
    fair_former: int  # float32
    fair_factors: int  # float32: FACTORS of each score
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
    steps: int  # of the history; no warm-up lies there nor behind
    season_history: int  # means of slots
    shorts: int
    rooted: int  # of the integers: 1 for each feature whose square root is taken
    times: int  # of the history
    ints: int
    upward: int = 0  # 1: bets pay for high coordinates alone

    def table(self) -> NDArray[np.int64]:
        """The layout as kernels take it: `plan[AT_R]` and the like."""
        hidden = [entry for kind, *features in hidden_scores(self.dims) for entry in (kind, *_three(features))]
        return np.array([*self, *hidden], dtype=np.int64)


# Entries of the table, in the order of the fields.
(
    DIMS,
    WARMUP,
    FIXED,
    COLUMNS,
    BETS,
    LOCATORS,
    DEPENDENCE,
    TRANSFORM,
    LEARNED,
    SPIKES,
    SPIKE_COUNT,
    HIDDEN,
    HIDDEN_COUNT,
    LEVEL,
    LEVEL_COUNT,
    PAYOFFS,
    R_LEARNED,
    R_SPIKES,
    R_HIDDEN,
    R_LEVEL,
    RUN_LEARNED,
    RUN_SPIKES,
    RUN_HIDDEN,
    V_ROOM,
    H_ROOM,
    S_ROOM,
    ATOM_ROOM,
    LENGTH,
    KEPT_ROOM,
    PERIOD,
    PERIOD_2,
    PERIOD_3,
    PERIODS,
    SEASON_AUTO,
    SEASON_TERMS,
    SLOT_MS,
    AT_SEASON_CENTER,
    AT_SEASON_SCALE,
    AT_SEASON_COV,
    AT_SEASON_COEF,
    AT_SLOT,
    AT_CENTER,
    AT_SCALE,
    AT_RAW_CENTER,
    AT_RAW_SCALE,
    AT_RING,
    AT_COEF,
    AT_AR_COV,
    AT_OFF,
    AT_VOLATILITY,
    AT_LAST,
    AT_HELD,
    AT_ORIGIN,
    AT_HISTORY,
    AT_KEPT,
    AT_UNION,
    AT_COV,
    AT_INVERSE,
    AT_WEIGHTS,
    AT_DUALS,
    AT_ATOMS,
    AT_H_SCORES,
    AT_TAILS,
    AT_SHORT_MEANS,
    AT_LONG_MEANS,
    AT_R,
    AT_LEVELS,
    AT_VALUES,
    AT_FAIR_SUMS,
    AT_FAIR_SQUARES,
    AT_FAIR_FORMER,
    AT_FAIR_FACTORS,
    AT_RUN_PRODUCT,
    AT_RUN_SEQ,
    AT_RUN_TIME,
    FLOATS,
    AT_V_BAG,
    V_ROWS,
    AT_H_BAG,
    AT_T_RING,
    AT_S_BAG,
    AT_STEPS,
    AT_SEASON_HISTORY,
    SHORTS,
    AT_ROOTED,
    AT_TIMES,
    INTS,
    UPWARD,
    HIDDEN_TABLE,  # kind and features of each candidate, four entries each
) = range(89)


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
    ERRORS,  # [d] of predictions by former coefficients
    ROOT,  # [d] the raw sample, square roots taken
    UNITS,  # first of d rows: [h_room] the bag in units of scale
) = range(12)


@inline
def singles(row: np.ndarray, at: int, n: int) -> np.ndarray:
    """float32[n], a view of the section that begins at entry `at` of a row of floats."""
    return row[at : at + (n + 1) // 2].view(np.float32)[:n]


def hidden_scores(dims: int) -> list[tuple[int, ...]]:
    """The candidates for the pick: kind, then the features it is computed from, in the order of the formula."""
    ordered = list(combinations(range(dims), 2))
    if dims > MAX_PRODUCT_DIMS:
        # Neighbours at distance 1, 2, ... so that every feature is there even where not all pairs are.
        ordered.sort(key=lambda pair: (pair[1] - pair[0], pair[0]))
        return [(ODD_ODD, *pair) for pair in ordered[:MAX_HIDDEN]]
    scores: list[tuple[int, ...]] = [(EVEN_ODD, *pair) for pair in permutations(range(dims), 2)]
    if dims <= MAX_TRIPLE_DIMS:
        scores += [(EVEN_EVEN, *pair) for pair in ordered]
        scores += [(ODD_ODD_ODD, *three) for three in combinations(range(dims), 3)]
    return scores


def _three(features: Sequence[int]) -> tuple[int, ...]:
    return (*features, *features)[:3]


@inline
def warmup_room(row: np.ndarray, shorts: np.ndarray, entry: int, plan: np.ndarray) -> tuple[np.ndarray, int]:
    """The array and the place in it of entry `entry` of the warm-up's samples (sample by sample, d entries each)."""
    at = plan[AT_UNION] + entry
    if at < plan[FLOATS]:
        return row, at
    return shorts.view(np.float64), at - plan[FLOATS]
