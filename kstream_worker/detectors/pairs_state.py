"""Where the pair detector keeps what in a key's row, and what is fixed for all keys of a bank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.battery import LEARNED, STAKES, bets_of, count_scores, padded, runs_of

VERSION = 5  # of what a row holds: part of the fingerprint, so that rows of another one are refused

# Columns of the int64 row; 0 is the random stream number of the key, which this detector does not need.
PHASE = 1  # one of the three below
COUNT = 2  # pairs of the warm-up while warming, steps of the estimators since
SEQ = 3  # pairs of this key so far
ATOMS = 4  # atoms in use, m
CLOCK = 5  # running maximum of the key's event times, milliseconds
UNTIL = 6  # event time before which no further alarm is raised
ALARM = 7  # 1 from `raised` to `cleared`
HELD = 8  # 1 once an alarm was held: the estimators have seen what they judge
ALARM_TIME = 9  # event time of the last alarm, from which its escalation decays
WARM_TIME = 10  # event time of the first pair of the present, or last, warm-up
INCIDENT = 11  # first of `alarms.INCIDENT_INTS`
LEAD = 16  # column of the score that leads the alarm that is up
SIDE = 17  # to which it moved, 1 or -1
DEPENDENT = 18  # 1 where the pairs of the last warm-up were found serially dependent
SINCE = 19  # number of the pair before the first that was bet on since the key was armed, or armed again
FIRST = 20  # number of the first pair that may be remembered
INTS = 21  # event times of the remembered pairs follow

# The first entries of the float64 row; they stay when all else is forgotten.
RATE = 0  # pairs per day in the last warm-up; 0 before, inf where its event times do not differ
ESCALATION = 1  # natural logarithm of the factor on the threshold right after the last alarm
BACK = 2  # statistic of the bets that the alarm's difference is over
MARGIN = 3  # mean payoff of the leading score, from which on its difference is said to last
OUTLIVING = 4

WARMING = 0
ARMED = 1
RAISED = 2

WIDE, NARROW, MIDDLE = 0, 1, 2  # the estimators, in the order of the learned columns
ESTIMATORS = 3
MAX_PRODUCT_DIMS = 10  # beyond, products would outnumber what they find


class Plan(NamedTuple):
    """Sizes, and offsets `at_*` into the float64 row of a key. While a key warms up, its pairs lie at `at_atoms`."""

    dims: int
    room: int  # for atoms, M, a multiple of 4
    warmup: int
    products: int  # 1 if products are among the scores
    scores: int  # S
    fixed: int  # columns for the S fixed scores, a multiple of 4
    columns: int  # all columns, fixed + 4
    runs: int
    bets: int
    length: int  # last pairs that an alarm is explained from
    at_center: int  # [d] median of each feature
    at_scale: int  # [d]
    at_recent: int  # [length d] those pairs, as 32-bit floats relative to the center: x, y of each
    at_gain: int  # [1] -1 / (2 width^2) of the widest kernel
    at_divergence: int  # [2] faded sum of the terms of the Pearson divergence, and of the weights
    at_weight: int  # [1] sum of the weights of the mean squares
    at_squares: int  # [columns] faded sum of D^2
    at_statistic: int  # [bets] R
    at_runs: int  # [runs] product of the current run
    at_run_seq: int  # [runs] its first pair
    at_run_time: int  # [runs] and that pair's event time
    at_w: int  # [3 M] weights of the estimators
    at_atoms: int  # [d M]
    at_wide: int  # packed L^-1 at 1.4 median distances
    at_middle: int  # at .7
    at_narrow: int  # at .35
    at_cov: int  # packed P of the middle one
    floats: int  # length of the row

    def table(self) -> NDArray[np.int64]:
        """The plan as kernels take it: `table[AT_W]` and the like."""
        return np.array(self, dtype=np.int64)


DIMS = Plan._fields.index("dims")
ROOM = Plan._fields.index("room")
WARMUP = Plan._fields.index("warmup")
PRODUCTS = Plan._fields.index("products")
FIXED = Plan._fields.index("fixed")
COLUMNS = Plan._fields.index("columns")
RUNS = Plan._fields.index("runs")
LENGTH = Plan._fields.index("length")
AT_CENTER = Plan._fields.index("at_center")
AT_SCALE = Plan._fields.index("at_scale")
AT_RECENT = Plan._fields.index("at_recent")
AT_GAIN = Plan._fields.index("at_gain")
AT_DIVERGENCE = Plan._fields.index("at_divergence")
AT_WEIGHT = Plan._fields.index("at_weight")
AT_SQUARES = Plan._fields.index("at_squares")
AT_STATISTIC = Plan._fields.index("at_statistic")
AT_RUNS = Plan._fields.index("at_runs")
AT_RUN_SEQ = Plan._fields.index("at_run_seq")
AT_RUN_TIME = Plan._fields.index("at_run_time")
AT_W = Plan._fields.index("at_w")
AT_ATOMS = Plan._fields.index("at_atoms")
AT_WIDE = Plan._fields.index("at_wide")
AT_MIDDLE = Plan._fields.index("at_middle")
AT_NARROW = Plan._fields.index("at_narrow")
AT_COV = Plan._fields.index("at_cov")


def make_plan(dims: int, room: int, warmup: int) -> Plan:
    """Lay out a row."""
    products = dims <= MAX_PRODUCT_DIMS
    scores = count_scores(dims, products)
    fixed = padded(scores)
    columns = fixed + LEARNED
    runs = runs_of(fixed)
    packed = room * (room + 1) // 2
    remembered = 256 if dims < 5 else 128
    small = (dims, dims, remembered * dims, 1, 2, 1, columns, bets_of(fixed), runs, runs, runs, ESTIMATORS * room)
    model = (dims * room, packed, packed, packed, packed)
    starts = np.cumsum((OUTLIVING, *small, *model[:-1])).tolist()
    length = OUTLIVING + sum(small) + max(sum(model), 2 * warmup * dims)
    sizes = (dims, room, warmup, int(products), scores, fixed, columns, runs, bets_of(fixed), remembered)
    return Plan._make((*sizes, *starts, length))


def column_weights(plan: Plan) -> NDArray[np.float64]:
    """Weight of each column: learned .5, coordinates and radius .25, products .25; 0 for padding.

    Without products the coordinates and the radius share .5.
    """
    simple = plan.dims + 1
    weights = np.zeros(plan.columns)
    weights[:simple] = (0.25 if plan.products else 0.5) / simple
    weights[simple : plan.scores] = 0.25 / max(1, plan.scores - simple)
    weights[plan.fixed : plan.fixed + ESTIMATORS] = 0.5 / ESTIMATORS
    return weights


def bet_weights(plan: Plan) -> NDArray[np.float64]:
    """Weight of one bet of each column: fixed columns hold ten bets, learned ones five."""
    weights = column_weights(plan)
    weights[: plan.fixed] /= 2 * len(STAKES)
    weights[plan.fixed :] /= len(STAKES)
    return weights
