"""Models: banks of estimators in contiguous arrays, and single-key classes over them."""

from kstream_worker.models.cme import CmeModel, OnlineCME
from kstream_worker.models.olre import OLRE, OlreBank

__all__ = ["OLRE", "CmeModel", "OlreBank", "OnlineCME"]
