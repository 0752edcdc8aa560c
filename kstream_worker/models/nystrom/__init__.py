"""Compiled kernels of the bounded likelihood-ratio estimators (Nystrom features of the estimator of paper 004).

The ratio is f = 1 + u with u in the span of m <= M atoms. In whitened coordinates phi(z) = L^-1 k(z), K(atoms, atoms)
= L L', u(z) = w' phi(z) and |u|_H = |w|. All functions work on flat, contiguous float64 views, allocate nothing, and
keep a fixed order of summation: four lanes at a time (`numerics.lanes`), never a reduction that a compiler may reorder.

Layouts (m atoms of d features; `stride` >= m is the room for atoms; vectors of m need no more room than m):
    atoms    float64[d * stride], feature j of atom i at j * stride + i
    inverse  float64[m (m + 1) / 2], the lower triangle of L^-1 by columns: column j holds rows j..m-1
    cov      float64[m (m + 1) / 2], the lower triangle of the symmetric covariance P = A^-1, by columns

A singular kernel matrix is truncated, never jittered: an atom whose pivot (its squared distance from the span of
those before it) is at most the tolerance is left out. When atoms are chosen, that ends the choice; when the factor is
taken at another width, the atom's row and column of L^-1 are exactly 0, so that its coordinate of phi is exactly 0
for ever.

m is always a multiple of 4 (`choose_atoms` sees to it, with dropped atoms where too few were found), so that whole
lanes suffice.
"""

from kstream_worker.models.nystrom.atoms import PIVOT_TOLERANCE, choose_atoms, factor, invert_lower, truncated_cholesky
from kstream_worker.models.nystrom.features import (
    FLOOR_EXPONENT,
    dot,
    dual_weights,
    exp_or_zero,
    fourth_power,
    gaussian,
    packed_size,
    packed_start,
    whiten,
    whiten_pair,
)
from kstream_worker.models.nystrom.steps import (
    RIDGE_PERIOD,
    average_step,
    fade_and_subtract,
    rls_reset,
    rls_step,
    sgd_step,
    slow_decay,
    whole_power,
)

__all__ = [
    "FLOOR_EXPONENT",
    "PIVOT_TOLERANCE",
    "RIDGE_PERIOD",
    "average_step",
    "choose_atoms",
    "dot",
    "dual_weights",
    "exp_or_zero",
    "factor",
    "fade_and_subtract",
    "fourth_power",
    "gaussian",
    "invert_lower",
    "packed_size",
    "packed_start",
    "rls_reset",
    "rls_step",
    "sgd_step",
    "slow_decay",
    "truncated_cholesky",
    "whiten",
    "whiten_pair",
    "whole_power",
]
