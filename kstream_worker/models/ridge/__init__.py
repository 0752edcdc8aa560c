"""Windowed kernel ridge with a certificate of every solve (paper 001): `RidgeModel` for many keys, `Ridge` for one.

layout        the row of a key
packed        symmetric matrices as packed triangles
fit           end of the warm-up: scales, width, tau; factorisation
certificate   recomputed residuals, refinement, status
kernel        the compiled walk
model         the bank, its kind, the single-key class
"""

from kstream_worker.models.ridge.model import Ridge, RidgeKind, RidgeModel

__all__ = ["Ridge", "RidgeKind", "RidgeModel"]
