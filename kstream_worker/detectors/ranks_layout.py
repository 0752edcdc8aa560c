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

from kstream_worker.detectors.bets import ONE_SIDED, TWO_SIDED
from kstream_worker.detectors.volatility import VOL_TERMS
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
FACTORS = 8  # on bets: of b's four stakes, of u's two, of the two powers

TWO_SIDED_LOCATORS = 5  # bets whose runs date a change: +b, -b, +u, -u, power of r
ONE_SIDED_LOCATORS = 2

WARMING, ARMED, RAISED = 0, 1, 2
NO_DEPENDENCE, AUTO, WHITEN, THIN, BLOCKS = range(5)
STATIONARY_SO_FAR, NOT_STATIONARY, TOLD = range(3)
EVERY, CHANGES, THINNED, MEANS = range(4)  # which samples are ranked
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
    SEASON_FIRST,  # civil time of the first sample, milliseconds
    SEASON_TESTED,  # slots that had been seen when seasons were last tested for
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
    BLOCK_TIME,  # event time of the first sample of the present block
    BLOCK_SUM,  # first of d sums over the present block, in steps
) = range(1, 50)

# Columns of the float row; the first OUTLIVING stay when all else is forgotten, and so do seasons, behind HEADER.
(
    RATE,  # samples per day in the last warm-up; 0 before, inf where its event times do not differ
    ESCALATION,  # natural logarithm of the factor on the threshold right after the last alarm
    GAIN,
    DIVERGENCE,
    FADED,
    LAST_RATIO,  # log ratio of the last sample that was ranked
    HEADER,
) = range(7)
OUTLIVING = 2


class Layout(NamedTuple):
    """Settings, sizes and offsets, in entries of the row they belong to. Passed to compiled code as it is."""

    dims: int
    warmup: int
    fixed: int  # columns of fixed scores: coordinates, radius, products
    columns: int  # fixed, d of block means, the learned one, sizes of single samples, the pick
    bets: int
    locators: int
    dependence: int
    transform: int
    learned: int  # its column
    spikes: int  # first column of sizes
    spike_count: int  # d or 0
    hidden: int  # the column that picks its score, where there are candidates
    hidden_count: int  # of them
    payoffs: int  # scores of single samples whose payoffs are watched: fixed, learned, the pick; two payoffs each
    # places of their bets and runs, counted as `bets` and `locators` are
    R_learned: int
    R_spikes: int
    R_hidden: int
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
    PAYOFFS,
    R_LEARNED,
    R_SPIKES,
    R_HIDDEN,
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
) = range(85)


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
    ROOT,  # [d] the raw sample, square roots taken
    UNITS,  # first of d rows: [h_room] the bag in units of scale
) = range(11)


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


def make_layout(dims: int, warmup: int, dependence: int, options: Options = DEFAULTS) -> Layout:
    """Lay out the row of a key of `dims` features."""
    return _lay_out(dims, warmup, dependence, options)[0]


def bytes_by_part(dims: int, warmup: int, dependence: int, options: Options = DEFAULTS) -> dict[str, int]:
    """Bytes of a key's row by what they are for; their sum is the size of the row."""
    return _lay_out(dims, warmup, dependence, options)[1]


def _lay_out(dims: int, warmup: int, dependence: int, options: Options) -> tuple[Layout, dict[str, int]]:
    sizes = PROFILES[options.profile]
    radius = 1 if dims > 1 else 0
    fixed = dims + radius + (dims * (dims - 1) // 2 if 2 <= dims <= MAX_PRODUCT_DIMS else 0)
    two_sided = fixed + dims
    spike_count = dims if options.spikes else 0
    hidden_count = len(hidden_scores(dims))
    R_spikes = two_sided * TWO_SIDED + ONE_SIDED
    R_hidden = R_spikes + spike_count * SPIKE_BETS
    picks = 1 if hidden_count else 0
    bets = R_hidden + picks * ONE_SIDED
    run_spikes = two_sided * TWO_SIDED_LOCATORS + ONE_SIDED_LOCATORS
    run_hidden = run_spikes + spike_count
    locators = run_hidden + picks * ONE_SIDED_LOCATORS
    columns = two_sided + 1 + spike_count + picks
    payoffs = fixed + 1 + picks
    parts: dict[str, int] = {}
    at = Cursor(8, parts)
    at.take(HEADER, "counters")
    seasons = _seasons(at, dims, options)
    preparation = _prepared(at, dims, dependence)
    length, kept_room, origin, history, kept = _remembered(at, dims, sizes, options)
    union = at.here
    packed = sizes.atoms * (sizes.atoms + 1) // 2
    cov, inverse = at.take(packed, "learned score"), at.take_singles(packed, "learned score")
    weights, duals = at.take(sizes.atoms, "learned score"), at.take_singles(sizes.atoms, "learned score")
    atoms = at.take_singles(sizes.atoms * dims, "learned score")
    h_scores = at.take_singles(sizes.learned, "learned bag")
    tails = at.take_singles(TAIL_ENTRIES * spike_count, "tails")
    squares, former = at.take_singles(2 * payoffs, "payoffs"), at.take_singles(2 * payoffs, "payoffs")
    sums, factors = at.take_singles(2 * payoffs, "payoffs"), at.take_singles(FACTORS * payoffs, "payoffs")
    short_means, long_means = at.take_singles(hidden_count, "candidates"), at.take_singles(hidden_count, "candidates")
    R, values = at.take_singles(bets, "bets"), at.take(columns, "bets")
    run_product, run_seq = at.take_singles(locators, "runs of bets"), at.take_singles(locators, "runs of bets")
    run_time = at.take(locators, "runs of bets")
    bags = Cursor(2, parts)
    v_rows = dims + radius
    v_bag, h_bag = bags.take(v_rows * sizes.bag, "bag"), bags.take(dims * sizes.learned, "learned bag")
    t_ring, s_bag = bags.take(dims * sizes.learned, "reference ring"), bags.take(dims * sizes.slow, "bag of means")
    bags.take(-bags.here % 4, "bag of means")  # the warm-up's samples may lie there, as float64
    more = warmup * (dims + bool(options.periods)) - (at.here - union) - bags.here // 4
    at.take(max(0, more), "warm-up beyond the rest")
    steps = bags.take(length * dims, "history")
    season_history = bags.take(dims * SEASON_SLOTS if options.season_auto else 0, "seasons")
    rooted, times = BLOCK_SUM + dims, BLOCK_SUM + 2 * dims
    parts["counters"] += 8 * times
    parts["history"] = parts.get("history", 0) + 8 * length
    layout = Layout(
        dims=dims,
        warmup=warmup,
        fixed=fixed,
        columns=columns,
        bets=bets,
        locators=locators,
        dependence=dependence,
        transform=TRANSFORMS[options.transform],
        learned=two_sided,
        spikes=two_sided + 1,
        spike_count=spike_count,
        hidden=two_sided + 1 + spike_count,
        hidden_count=hidden_count,
        payoffs=payoffs,
        R_learned=two_sided * TWO_SIDED,
        R_spikes=R_spikes,
        R_hidden=R_hidden,
        run_learned=two_sided * TWO_SIDED_LOCATORS,
        run_spikes=run_spikes,
        run_hidden=run_hidden,
        v_room=sizes.bag,
        h_room=sizes.learned,
        s_room=sizes.slow,
        atom_room=sizes.atoms,
        length=length,
        kept_room=kept_room,
        origin=origin,
        history=history,
        kept=kept,
        union=union,
        cov=cov,
        inverse=inverse,
        weights=weights,
        duals=duals,
        atoms=atoms,
        h_scores=h_scores,
        tails=tails,
        short_means=short_means,
        long_means=long_means,
        R=R,
        values=values,
        fair_sums=sums,
        fair_squares=squares,
        fair_former=former,
        fair_factors=factors,
        run_product=run_product,
        run_seq=run_seq,
        run_time=run_time,
        floats=at.here,
        v_bag=v_bag,
        v_rows=v_rows,
        h_bag=h_bag,
        t_ring=t_ring,
        s_bag=s_bag,
        steps=steps,
        season_history=season_history,
        shorts=bags.here,
        rooted=rooted,
        times=times,
        ints=times + length,
        **preparation,
        **seasons,
    )
    return layout, parts


def _seasons(at: Cursor, dims: int, options: Options) -> dict[str, int]:
    """The periods and where the state of seasons begins, by field of the layout."""
    periods = options.periods
    features = dims if periods else 0
    terms = 1 + TERMS_PER_PERIOD * len(periods) if periods else 0
    first, second, third = (*periods, 1, 1, 1)[:MAX_PERIODS]
    return {
        "period": first,
        "period_2": second,
        "period_3": third,
        "periods": len(periods),
        "season_auto": int(options.season_auto),
        "season_terms": terms,
        "slot_ms": max(1, min(periods) // SLOTS_PER_PERIOD) if periods else 1,
        "season_center": at.take(features, "seasons"),
        "season_scale": at.take(features, "seasons"),
        "season_cov": at.take(terms * (terms + 1) // 2, "seasons"),
        "season_coef": at.take(features * terms, "seasons"),
        "slot": at.take(features + bool(periods), "seasons"),
    }


def _prepared(at: Cursor, dims: int, dependence: int) -> dict[str, int]:
    """Where that begins which samples pass through before they are ranked, by field of the layout."""
    tested = 0 if dependence == NO_DEPENDENCE else dims
    return {
        "center": at.take(dims, "scales"),
        "scale": at.take(dims, "scales"),
        "raw_center": at.take(tested, "scales"),
        "raw_scale": at.take(tested, "scales"),
        "ring": at.take(tested * AR_ORDER, "autoregressions"),
        "coef": at.take(tested * AR_TERMS, "autoregressions"),
        "ar_cov": at.take(tested * AR_COV, "autoregressions"),
        "off": at.take(tested, "autoregressions"),
        "volatility": at.take(tested * VOL_TERMS, "autoregressions"),
        "last": at.take(tested, "choice of samples"),
        "held": at.take(tested, "choice of samples"),
    }


def _remembered(at: Cursor, dims: int, sizes: Sizes, options: Options) -> tuple[int, int, int, int, int]:
    """Length of the history, room of the older samples; where origin, history and these begin."""
    if not options.explained:
        return 0, 0, at.here, at.here, at.here
    length = sizes.history if dims <= 4 else max(sizes.history // 2, SHORTEST_HISTORY)
    origin, history = at.take(dims, "history"), at.take_singles(length * dims, "history")
    return length, sizes.kept, origin, history, at.take_singles(sizes.kept * dims, "history")


@inline
def warmup_room(row: np.ndarray, shorts: np.ndarray, entry: int, plan: np.ndarray) -> tuple[np.ndarray, int]:
    """The array and the place in it of entry `entry` of the warm-up's samples (sample by sample, d entries each)."""
    at = plan[AT_UNION] + entry
    if at < plan[FLOATS]:
        return row, at
    return shorts.view(np.float64), at - plan[FLOATS]


def column_weights(layout: Layout) -> NDArray[np.float64]:
    """Weights of all columns, float64[columns], sum 1.

    One fifth: sizes of single samples, if asked for. One tenth: the pick, if there are candidates. Of the rest nine
    tenths: as `sample_weights`; one tenth: block means. Where only high coordinates pay, nine tenths are theirs, as any
    other score would pay for low ones too; 6 of a column's 14 bets are made then, which the weights make up for.
    """
    dims = layout.dims
    weights = np.zeros(layout.columns)
    if layout.upward:
        weights[:dims] = 0.9 / dims
        weights[layout.fixed : layout.learned] = 0.1 / dims
        return weights * (TWO_SIDED / ONE_SIDED)
    spikes = SPIKE_WEIGHT if layout.spike_count else 0.0
    hidden = HIDDEN_WEIGHT if layout.hidden_count else 0.0
    rest = 1.0 - spikes - hidden
    own = sample_weights(layout, 0.9 * rest)
    weights[: layout.fixed] = own[:-1]
    weights[layout.fixed : layout.learned] = 0.1 * rest / dims
    weights[layout.learned] = own[-1]
    weights[layout.spikes : layout.hidden] = spikes / max(1, layout.spike_count)
    weights[layout.hidden :] = hidden
    return weights


def sample_weights(layout: Layout, share: float = 1.0) -> NDArray[np.float64]:
    """Weights of the fixed columns that score single samples, then of the learned one: float64[fixed + 1].

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
    """Room that compiled code works in: the sample in steps with its radius (behind it, room for a feature of the bag
    and a score's three coordinates), the matrix of the rows above, integers.
    """
    return (
        np.zeros(layout.dims + 1 + layout.v_room + 3, dtype=np.int16),
        np.zeros((UNITS + layout.dims, max(layout.h_room, layout.dims))),
        np.zeros(layout.atom_room, dtype=np.int64),
    )


def runs_of_column(layout: Layout, column: int) -> tuple[int, int]:
    """The first run of a column, and how many it has."""
    if column < layout.learned:
        return column * TWO_SIDED_LOCATORS, TWO_SIDED_LOCATORS
    if column == layout.learned:
        return layout.run_learned, ONE_SIDED_LOCATORS
    if column < layout.hidden:
        return layout.run_spikes + column - layout.spikes, 1
    return layout.run_hidden, ONE_SIDED_LOCATORS


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
