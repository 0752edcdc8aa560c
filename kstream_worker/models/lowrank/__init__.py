"""Compiled kernels of online low-rank subspace clustering (paper 002): codes, basis, and clusters of cleaned samples.

All functions work on flat, contiguous float64 views, allocate nothing, and keep a fixed order of summation. A basis D
of d columns in p sensors is stored by columns: column j at j * p.
"""

from kstream_worker.models.lowrank.basis import accumulate, gram, improve_basis
from kstream_worker.models.lowrank.code import MISSING, OUTSIDE, SEEN, Work, code, make_work

__all__ = ["MISSING", "OUTSIDE", "SEEN", "Work", "accumulate", "code", "gram", "improve_basis", "make_work"]
