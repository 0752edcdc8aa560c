"""Where in a key's history did a score change? A Bayesian split of ranks, in compiled scalar loops.

The samples of the history are ranked in the bag that the detector holds: before a change the normalised ranks are
uniform. For the law after a change there are two halves of a prior. One half, for changes that are small: the 14 bets
of the detector, each a density of the rank, equally likely. The other, for large ones: ranks fall into ten cells,
narrow at both ends, whose law is unknown, with a Dirichlet prior (1/2 each); the likelihood is then that of Polya's
urn. So the likelihood of a change before sample k against none is

    e^l(k) = 1/2 mean over bets of prod g(p_t) + 1/2 prod (1/2 + n_cell) / (5 + n) / width of the cell,

products over t >= k, n_cell counting the samples after t in the cell of t, n all of them. With every k alike
beforehand, e^l(k) is up to a factor the posterior law of the first changed sample; when an alarm stops the stream does
not matter to it (the likelihood principle). Scores are compared by l at one common split: negative where a score speaks
against a change.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.bets import TWO_SIDED, two_sided
from kstream_worker.detectors.history import UNRANKED
from kstream_worker.detectors.ranking import count, count_products, product, radius
from kstream_worker.detectors.ranks_hidden import count_hidden
from kstream_worker.detectors.ranks_layout import (
    AT_H_BAG,
    AT_STEPS,
    AT_T_RING,
    AT_V_BAG,
    DIMS,
    FIXED,
    H_ROOM,
    H_SIZE,
    HIDDEN_TABLE,
    LENGTH,
    PICKED,
    V_ROOM,
    V_ROWS,
    V_SIZE,
)
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import exp, log

EDGES = (0.005, 0.025, 0.1, 0.3, 0.5, 0.7, 0.9, 0.975, 0.995)
CELLS = len(EDGES) + 1
PRIOR = 0.5
LEVEL = 0.9  # of the set of splits

_WIDTHS = tuple(high - low for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))


@inline
def _cell(u: float) -> int:
    cell = 0
    for edge in EDGES:
        if u >= edge:
            cell += 1
    return cell


@jit
def split_scores(first: int, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray, likelihood: np.ndarray) -> None:
    """l of every fixed score, and of the one that is picked, at every split.

    The last sample is ranked; others may be missing.

    Args:
        first: number of the first sample to look at; it and all later ones are in the history, in steps.
        shorts: the key's shorts.
        state: the key's integers.
        plan: layout.
        likelihood: float64[plan[FIXED], n], or with a row more for the pick; n = state[SEQ] - first + 1. Filled: l of a
            change before each of them.
    """
    d = plan[DIMS]
    scores, n = likelihood.shape
    size = state[V_SIZE]
    bag = shorts[plan[AT_V_BAG] : plan[AT_H_BAG]]
    q = np.zeros(d + 1, dtype=np.int16)
    room = plan[V_ROOM]
    counts = np.zeros((scores, CELLS))
    urn = np.zeros(scores)
    paid = np.zeros((scores, TWO_SIDED))
    g = np.empty(TWO_SIDED)
    seen = 0
    for i in range(n - 1, -1, -1):
        at = plan[AT_STEPS] + (first + i) % plan[LENGTH] * d
        if shorts[at] == UNRANKED:
            for c in range(scores):  # the next ranked one stands for it too
                likelihood[c, i] = likelihood[c, i + 1]
            continue
        for j in range(d):
            q[j] = shorts[at + j]
        if plan[V_ROWS] > d:
            q[d] = radius(q, d)
        a = 0
        b = 0
        for c in range(scores):
            members = size
            if c < plan[V_ROWS]:
                larger, equal = count(bag[c * room : c * room + size], q[c])
            elif c == plan[FIXED]:
                members = state[H_SIZE]
                larger, equal = _count_picked(shorts, state, q, plan)
            else:
                b += 1
                if b == d:
                    a += 1
                    b = a + 1
                larger, equal = count_products(
                    bag[a * room : a * room + size], bag[b * room : b * room + size], product(q[a], q[b])
                )
            u = (np.float64(larger) + 0.5 * np.float64(equal) + 0.5) / (members + 1.0)
            cell = _cell(u)
            urn[c] += log((PRIOR + counts[c, cell]) / (PRIOR * CELLS + seen) / _WIDTHS[cell])
            counts[c, cell] += 1.0
            two_sided(u, g)
            for k in range(TWO_SIDED):
                paid[c, k] += log(g[k])
            likelihood[c, i] = mixed(urn[c], paid[c])
        seen += 1


@inline
def _count_picked(shorts: np.ndarray, state: np.ndarray, q: np.ndarray, plan: np.ndarray) -> tuple[np.int16, np.int16]:
    bags = shorts[plan[AT_H_BAG] : plan[AT_T_RING]].reshape(plan[DIMS], plan[H_ROOM])
    n = state[H_SIZE]
    at = HIDDEN_TABLE + 4 * state[PICKED]
    entry = plan[at : at + 4]
    own = np.empty(3, dtype=np.int16)
    for f in range(3):
        own[f] = q[entry[1 + f]]
    larger, equal = count_hidden(entry[0], bags[entry[1], :n], bags[entry[2], :n], bags[entry[3], :n], own)
    return larger, equal


@inline
def mixed(urn: float, paid: np.ndarray) -> float:
    """log of the mean of e^urn and the mean of e^paid.

    Args:
        urn: a logarithm.
        paid: float64[n], logarithms.
    """
    largest = urn
    for value in paid:
        largest = max(largest, value)
    total = 0.0
    for value in paid:
        total += exp(value - largest)
    return largest + log(0.5 * exp(urn - largest) + 0.5 * total / len(paid))


@jit
def split_set(likelihood: np.ndarray) -> tuple[int, int, int]:
    """Most likely split, and the first and last of the smallest set of splits that holds 90 % of the posterior.

    Args:
        likelihood: float64[n], l of one score, n >= 1.
    """
    n = len(likelihood)
    best = 0
    for i in range(n):
        if likelihood[i] > likelihood[best]:
            best = i
    weights = np.empty(n)
    total = 0.0
    for i in range(n):
        weights[i] = exp(likelihood[i] - likelihood[best])
        total += weights[i]
    low = high = best
    held = 0.0
    while held < LEVEL * total:
        at = 0
        for i in range(n):
            if weights[i] > weights[at]:
                at = i
        held += weights[at]
        weights[at] = -1.0
        low = min(low, at)
        high = max(high, at)
    return best, low, high
