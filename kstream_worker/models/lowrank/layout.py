"""Where the low-rank bank keeps what: the columns of a key's rows, the plan of a bank and its work space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.lowrank.cluster import MOST
from kstream_worker.models.lowrank.code import Work, make_work

# Columns of the int64 row; 0 is the key's random stream number.
PHASE = 1
SEQ = 2  # samples of this key so far
WARM = 3  # samples of the warm-up held
DRAWS = 4  # of the reservoir
FILLED = 5  # samples in the reservoir
CLUSTERS = 6  # sub-bases in the pool; 0 before the first
SIZE = 7  # vectors of each
NAMES = 8  # [MOST], their labels
INTS = 8 + MOST

WARMING = 0
ARMED = 1

# Offsets within the sums, all faded by gamma.
WEIGHT = 0  # of 1: how many samples the model remembers
EXPRESSED = 1  # of the squared length of the cleaned sample's projection on span D
LENGTH = 2  # of the squared length of the cleaned sample
SUMS = 3

# Columns of the values behind the sensors' own.
SUBSPACE = 0
VARIANCE = 1
SHARE = 2
RATIO = 3
EXTRA = 4


class Plan(NamedTuple):
    """Settings, and the layout of a float64 row (`at_*` are offsets).

    While a key warms up its samples lie from `at_held` on, then the reservoir of cleaned ones.
    """

    dims: int  # p
    rank: int  # d
    warmup: int
    settle: int
    subspaces: int  # 0: as many as are found
    reservoir: int  # cleaned samples kept; 0 where there is one subspace alone
    period: int  # samples between two clusterings
    lambda1: float
    lambda2: float
    gamma: float
    shrinkage: float
    at_center: int  # [p]
    at_scale: int  # [p], 0: the sensor is left out
    at_recent: int  # [p]
    at_usual: int  # [p]
    at_sums: int  # [SUMS]
    at_basis: int  # [d * p]
    at_a: int  # [d * d]
    at_b: int  # [d * p]
    at_m: int  # [d * p]
    at_pool: int  # [2 * d * p], sub-bases
    at_held: int  # [max(warmup, reservoir) * p]
    floats: int  # length of a row


class Scratch(NamedTuple):
    """Work space of one bank; holds nothing between samples."""

    work: Work
    z: NDArray[np.float64]  # [p], scaled, 0 where missing
    cleaned: NDArray[np.float64]  # [p], scaled
    corruption: NDArray[np.float64]  # [p], scaled, NaN where missing
    lower: NDArray[np.float64]  # [d * d], of D' D
    projected: NDArray[np.float64]  # [d]
    column: NDArray[np.float64]  # [max(p, warmup)]
    held: NDArray[np.float64]  # [warmup * p]


def make_scratch(plan: Plan) -> Scratch:
    """Work space for a plan."""
    p, d = plan.dims, plan.rank
    return Scratch(
        work=make_work(p, d),
        z=np.zeros(p),
        cleaned=np.zeros(p),
        corruption=np.zeros(p),
        lower=np.zeros(d * d),
        projected=np.zeros(d),
        column=np.zeros(max(p, plan.warmup)),
        held=np.zeros(plan.warmup * p),
    )
