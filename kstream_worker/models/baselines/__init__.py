"""Batch likelihood-ratio estimators of the literature, for comparison: RULSIF and KLIEP."""

from kstream_worker.models.baselines.kliep import KLIEP
from kstream_worker.models.baselines.rulsif import RULSIF

__all__ = ["KLIEP", "RULSIF"]
