"""Kernel ridge systems solved with a certificate, whose residuals bound their own rounding too (paper 001).

residuals   y - (K + tau I) b and its norm, never understated
result      `CertifiedSolve`: status, solution, residuals, bounds
sketch      Nystrom factors
solve       `solve_certified`: Cholesky, or preconditioned conjugate gradients, by size
"""

from kstream_worker.models.certified.result import CertifiedSolve, Status
from kstream_worker.models.certified.solve import solve_certified

__all__ = ["CertifiedSolve", "Status", "solve_certified"]
