"""The papers' forms exactly, with dictionaries that grow: for one key, in a notebook, never in a worker."""

from kstream_worker.models.paper.olre import PaperOLRE
from kstream_worker.models.paper.olrsc import PaperOLRSC

__all__ = ["PaperOLRE", "PaperOLRSC"]
