"""Explicit pairs: each record holds a reference sample x and a live sample y."""

from __future__ import annotations

from kstream_worker.records import FloatMatrix, IntColumn, Samples


class Explicit:
    """Row i is the pair (x_i, y_i) of record i, as it stands.

    Args:
        feature_names: names of the d numbers of the live side.
    """

    def __init__(self, feature_names: tuple[str, ...]) -> None:
        self.feature_names = feature_names

    def pair(
        self, offsets: IntColumn, times: IntColumn, keys: list[bytes], x: FloatMatrix | None, y: FloatMatrix
    ) -> Samples:
        """The samples of these records (shapes as in `Pairing.pair`).

        Raises:
            ValueError: no reference side, or the sides differ in length.
        """
        if x is None or len(x) != len(y):
            raise ValueError(
                f"explicit pairs need two sides of one length, got {None if x is None else x.shape} and {y.shape}"
            )
        return Samples(offsets, times, keys, x, y)
