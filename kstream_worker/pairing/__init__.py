"""What a model sees of a record: both sides of a pair, or one sample whose own past is the reference.

Contract of a pairing: a pure function of the accepted records of one partition in offset order. It neither adds, drops
nor reorders rows, copies no values, and answers for row i from the records of row i's key alone, up to and including
row i; so neither the cut of the stream into batches nor other keys can change a key's samples.
"""

from __future__ import annotations

from typing import Protocol

from kstream_worker.errors import ConfigError
from kstream_worker.pairing.explicit import Explicit
from kstream_worker.pairing.stream import Stream
from kstream_worker.records import FloatMatrix, IntColumn, Samples


class Pairing(Protocol):
    """Columns of accepted records in, samples for the bank out."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d columns of `Samples.y`, for reports."""
        ...

    def pair(
        self, offsets: IntColumn, times: IntColumn, keys: list[bytes], x: FloatMatrix | None, y: FloatMatrix
    ) -> Samples:
        """The samples of these records.

        Args:
            offsets: int64[n], ascending.
            times: int64[n], event times, milliseconds since the epoch.
            keys: n entity keys.
            x: float64[n, dx], the reference or input side; None when records are one-sided.
            y: float64[n, d], the live side.
        """
        ...


def pairing_of(mode: str, *, two_sided: bool, feature_names: tuple[str, ...]) -> Pairing:
    """The pairing of a configured mode; `auto` is `explicit` for two bound sides and `stream` for one.

    Args:
        mode: `explicit`, `stream`, `reference`, `lag` or `single` (whose records are all those of a stream), or `auto`.
        two_sided: whether records hold both sides.
        feature_names: names of the d numbers of the live side.

    Raises:
        ConfigError: the mode is unknown, or does not fit what is bound.
    """
    if mode == "auto":
        mode = "explicit" if two_sided else "stream"
    if mode == "explicit":
        if not two_sided:
            raise ConfigError("pairing.mode = explicit needs both sides: bind input.x and input.y, or use stream")
        return Explicit(feature_names)
    if mode in ("stream", "reference", "lag", "single"):
        if two_sided:
            raise ConfigError(f"pairing.mode = {mode} takes one side: bind input.y alone, or use explicit")
        return Stream(feature_names)
    raise ConfigError(f"pairing.mode = {mode!r} is unknown: use auto, explicit, stream, reference, lag or single")


__all__ = ["Explicit", "Pairing", "Stream", "pairing_of"]
