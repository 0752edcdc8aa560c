"""Models: banks of estimators in contiguous arrays, and single-key classes over them."""

from kstream_worker.models.certified import CertifiedSolve, solve_certified
from kstream_worker.models.cme import CmeModel, OnlineCME
from kstream_worker.models.koopman import Koopman, KoopmanModel
from kstream_worker.models.olre import OLRE, OlreBank
from kstream_worker.models.olrsc import OLRSC, OlrscModel
from kstream_worker.models.ridge import Ridge, RidgeKind, RidgeModel

__all__ = [
    "OLRE",
    "OLRSC",
    "CertifiedSolve",
    "CmeModel",
    "Koopman",
    "KoopmanModel",
    "OlreBank",
    "OlrscModel",
    "OnlineCME",
    "Ridge",
    "RidgeKind",
    "RidgeModel",
    "solve_certified",
]
