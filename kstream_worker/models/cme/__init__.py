"""Conditional mean embeddings in bounded memory (paper 000): the compressed operator, and models that stand on it."""
