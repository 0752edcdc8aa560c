"""Least squares of few terms that forget: y is expected at C A^-1 t, A and C fading sums of t t' and y t'.

A begins as `ridge` I and is held by its Cholesky factor, packed by rows as in `triangle`. The ridge fades with the
rest, so after each step one term, in turn, gets back what it loses in a round: A stays positive definite whatever
comes. A section of a row holds the factor, then C by targets.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.cme.triangle import row_start, solve_lower
from kstream_worker.models.nystrom import dot, whole_power
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.outline import outline


def section_size(terms: int, targets: int) -> int:
    """Entries of a section."""
    return terms * (terms + 1) // 2 + terms * targets


@inline
def start(section: np.ndarray, terms: int, ridge: float) -> None:
    """A <- ridge I, C <- 0."""
    section[:] = 0.0
    for i in range(terms):
        section[row_start(i) + i] = math.sqrt(ridge)


@inline
def solve(section: np.ndarray, terms: int, t: np.ndarray, out: np.ndarray) -> None:
    """out <- A^-1 t, float64[>= terms] each; the expected value of target j is then `times(section, terms, j, out)`."""
    outline()
    solve_lower(section, terms, t, 0, out)
    for i in range(terms - 1, -1, -1):
        at = row_start(i)
        out[i] /= section[at + i]
        for j in range(i):
            out[j] -= section[at + j] * out[i]


@inline
def times(section: np.ndarray, terms: int, target: int, v: np.ndarray) -> float:
    """C_target v."""
    at = row_start(terms) + target * terms
    product: float = dot(section[at : at + terms], v, terms)
    return product


@inline
def learn(
    section: np.ndarray,
    terms: int,
    keep: float,
    ridge: float,
    step: int,
    t: np.ndarray,
    targets: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """A <- keep A + t t' + what a term has lost of its ridge, C <- keep C + y t'.

    Args:
        section: of a row, changed.
        terms: in t.
        keep: forgetting, below 1.
        ridge: as at the start.
        step: any counter; it says whose turn it is.
        t: float64[>= terms].
        targets: float64[targets], y.
        scratch: float64[>= terms].
    """
    outline()
    root = math.sqrt(keep)
    for i in range(row_start(terms)):
        section[i] *= root
    for i in range(terms):
        scratch[i] = t[i]
    _add_square(section, terms, 0, scratch)
    turn = step % terms
    for i in range(terms):
        scratch[i] = 0.0
    scratch[turn] = math.sqrt(ridge * (1.0 - whole_power(keep, terms)))
    _add_square(section, terms, turn, scratch)
    at = row_start(terms)
    for j in range(len(targets)):
        for i in range(terms):
            section[at + i] = keep * section[at + i] + targets[j] * t[i]
        at += terms


@inline
def _add_square(lower: np.ndarray, n: int, first: int, v: np.ndarray) -> None:
    """L of L L' + v v', by rotations; v is 0 before entry `first`, and used up."""
    for j in range(first, n):
        at = row_start(j) + j
        pivot = math.sqrt(lower[at] * lower[at] + v[j] * v[j])
        cosine = lower[at] / pivot
        sine = v[j] / pivot
        lower[at] = pivot
        for i in range(j + 1, n):
            below = row_start(i) + j
            left = lower[below]
            lower[below] = cosine * left + sine * v[i]
            v[i] = cosine * v[i] - sine * left
