"""Section `state`: what is kept of each key, and what happens when it does not fit what is found."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc, duration


class StateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Snapshots of the models, the life of keys, and policies for state that does not fit."""

    topic: Annotated[
        str, doc("Compacted topic of the snapshots, with as many partitions as the input. Empty: `<app.id>-state`.")
    ] = ""
    interval: Annotated[
        float,
        duration("A key in use is snapshotted about this often, where the budget of bytes allows.", ge=0.2),
    ] = 30.0
    replay_records: Annotated[
        int,
        doc("Most input records that one process reads again after a crash to bring its models up to date.", ge=1),
    ] = 5_000_000
    ttl: Annotated[
        float,
        duration("A key is forgotten after so much event time of its partition without a record of its own. 0: never."),
    ] = 7 * 86400.0
    max_keys: Annotated[
        int,
        doc("Most keys that one partition holds; samples of further keys are refused, as dead letters.", ge=1),
    ] = 100_000
    max_future_skew: Annotated[
        float,
        duration("An event time further ahead of its record's own time does not advance the partition's clock.", ge=0),
    ] = 3600.0
    on_offset_mismatch: Annotated[
        Literal["fail", "trust_state", "discard_state"],
        doc(
            "When the group's offsets, the state and the input do not fit together (offsets reset or expired, topic "
            "deleted or cut): end and say what was found, go on from what the state says, or start the models afresh."
        ),
    ] = "fail"
    format: Annotated[
        int,
        doc("Format that state is written in. Raise it when no older release runs any more; all are read.", ge=1, le=2),
    ] = 1
