"""The papers' forms exactly, with dictionaries that grow: for one key, in a notebook, never in a worker."""

from kstream_worker.models.paper.cme import PaperCME
from kstream_worker.models.paper.koopman import PaperKoopman
from kstream_worker.models.paper.olre import PaperOLRE
from kstream_worker.models.paper.olrsc import PaperOLRSC
from kstream_worker.models.paper.ridge import solve_sketched

__all__ = ["PaperCME", "PaperKoopman", "PaperOLRE", "PaperOLRSC", "solve_sketched"]
