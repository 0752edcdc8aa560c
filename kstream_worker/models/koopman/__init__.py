"""The Koopman operator of each key's dynamics, learned online in bounded memory (papers 000 and 003)."""

from kstream_worker.models.koopman.model import Koopman, KoopmanKind, KoopmanModel

__all__ = ["Koopman", "KoopmanKind", "KoopmanModel"]
