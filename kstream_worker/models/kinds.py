"""The built-in kinds of models beyond the likelihood ratio, by the names under which they are configured."""

from __future__ import annotations

from kstream_worker.models.cme import CmeKind
from kstream_worker.models.contract import ModelKind
from kstream_worker.models.koopman import KoopmanKind
from kstream_worker.models.olrsc import OlrscKind
from kstream_worker.models.ridge import RidgeKind
from kstream_worker.models.river import RiverKind

KINDS: dict[str, ModelKind] = {
    "cme": CmeKind(),
    "olrsc": OlrscKind(),
    "ridge": RidgeKind(),
    "koopman": KoopmanKind(),
    "river": RiverKind(),
}
