"""Section `input`: which records are read, and which of their fields are bound to what."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc, size
from kstream_worker.config.units import parse_time

Paths = str | tuple[str, ...]


class InputConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input topic and the bindings of its fields."""

    topic: Annotated[str, doc("The topic to read. Needed on Kafka; with files it only names them.")] = ""
    format: Annotated[Literal["json", "msgpack"], doc("Encoding of the record values.")] = "json"
    x: Annotated[
        Paths,
        doc(
            "Path or paths of the reference or input side of a pair. A list names one number each; a single path names "
            "one number, or with `input.dims` an array. Empty: one-sided records."
        ),
    ] = ()
    y: Annotated[
        Paths, doc("Path or paths of the live or output side, or of the sample, in the same way. Always needed.")
    ] = ()
    dims: Annotated[
        int | None, doc("Length of the arrays, where `x` or `y` is the path of an array; of both where both are.", ge=1)
    ] = None
    timestamp: Annotated[
        str, doc("Path of the event time (epoch milliseconds or ISO 8601). Empty: the record's own.")
    ] = ""
    key: Annotated[str, doc("Path of the key within the value. Empty: the record's key.")] = ""
    null_key: Annotated[
        Literal["reject", "by_offset"],
        doc("Records without a key: refused, or spread by offset over `input.null_key_buckets` keys."),
    ] = "reject"
    null_key_buckets: Annotated[int, doc("Number of keys for records without one.", ge=1, le=1_000_000)] = 1
    start: Annotated[
        str,
        doc(
            "Where a group without committed offsets begins: `earliest`, `latest` or a time in ISO 8601 with a "
            "zone. Partitions that are added later always begin at the earliest record."
        ),
    ] = "earliest"
    max_record_bytes: Annotated[int, size("Largest value that is decoded.", ge=1)] = 2**20

    def side_dims(self, side: Paths) -> int:
        """Number of values that a side binds; 0 when it is not bound."""
        if isinstance(side, tuple):
            return len(side)
        return (self.dims or 1) if side else 0

    def start_ms(self) -> int | None:
        """The time to start from, in milliseconds since the epoch; None for `earliest` and `latest`.

        Raises:
            ValueError: not a time, or one without a zone.
        """
        if self.start in ("earliest", "latest"):
            return None
        return parse_time(self.start)
