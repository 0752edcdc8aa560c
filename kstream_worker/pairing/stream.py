"""One sample a record; the key's own past is the reference, which the bank keeps."""

from __future__ import annotations

from kstream_worker.records import FloatMatrix, IntColumn, Samples


class Stream:
    """Row i is the sample y_i of record i, as it stands.

    Args:
        feature_names: names of the d numbers of a sample.
    """

    def __init__(self, feature_names: tuple[str, ...]) -> None:
        self.feature_names = feature_names

    def pair(
        self, offsets: IntColumn, times: IntColumn, keys: list[bytes], x: FloatMatrix | None, y: FloatMatrix
    ) -> Samples:
        """The samples of these records (shapes as in `Pairing.pair`).

        Raises:
            ValueError: there is a reference side, which a stream has no use for.
        """
        if x is not None:
            raise ValueError("a stream is one-sided: there must be no reference side")
        return Samples(offsets, times, keys, None, y)
