"""Models: banks of estimators in contiguous arrays, and single-key classes over them."""

from kstream_worker.models.olre import OLRE, OlreBank
from kstream_worker.models.olrsc import OLRSC, OlrscModel

__all__ = ["OLRE", "OLRSC", "OlreBank", "OlrscModel"]
