"""Section `reference`: what `pairing.mode` reference compares each key with."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc
from kstream_worker.config.units import parse_time


class ReferenceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The frozen reference of each key: its samples in a file, those of a time range, or its first ones. A key that is
    forgotten (a tombstone, `state.ttl`) takes a new one when it comes again.
    """

    samples: Annotated[
        int,
        doc(
            "Samples of a reference, at most: more see smaller differences, at the price of memory. A key is armed "
            "when it has so many.",
            ge=500,
            le=2000,
        ),
    ] = 500
    delta: Annotated[
        float,
        doc(
            "Share of references with which the stated rate of false alarms may fail by the chance in them. The "
            "smaller, the larger the differences that are ignored.",
            ge=1e-6,
            le=0.25,
        ),
    ] = 0.05
    file: Annotated[
        str,
        doc(
            "JSON Lines (or `.csv`) with the fields of `input.y`, in order of time; the key stands under `input.key`, "
            "else under `key`. Lines without a key serve the keys that have none of their own; where there are "
            "neither, a key's first samples do. Of each key the first `samples` count."
        ),
    ] = ""
    start: Annotated[
        str,
        doc("Event time, ISO 8601 with a zone, from which a key's samples join its reference. Empty: from the first."),
    ] = ""
    end: Annotated[
        str,
        doc(
            "Event time that closes a reference of at least 200 samples before it is full; one that has fewer goes on "
            "until it is full, and its alarms say so."
        ),
    ] = ""

    def start_ms(self) -> int | None:
        """`start` in milliseconds since the epoch; None where it is empty.

        Raises:
            ValueError: not a time, or one without a zone.
        """
        return parse_time(self.start) if self.start else None

    def end_ms(self) -> int | None:
        """`end`, likewise."""
        return parse_time(self.end) if self.end else None
