"""Conditional mean embeddings in bounded memory (paper 000): the compressed operator, and models that stand on it."""

from kstream_worker.models.cme.bank import CmeKind, CmeModel, OnlineCME

__all__ = ["CmeKind", "CmeModel", "OnlineCME"]
