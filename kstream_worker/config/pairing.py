"""Section `pairing`: what a model compares with what."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from kstream_worker.config.fields import doc, duration

PairingMode: TypeAlias = Literal["auto", "explicit", "stream", "reference", "lag", "single"]


class PairingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How records become what the models see."""

    mode: Annotated[
        PairingMode,
        doc(
            "`explicit`: each record holds a reference sample x and a live sample y. `stream`: one sample a "
            "record, the key's own past is the reference. `reference`: likewise, but that past is frozen "
            "(section `reference`): drift from commissioning. Of other kinds of models (`model.kind`): `explicit`, or "
            "`lag`: one sample a record, paired with the key's sample `lag` before it; `single`: the sample alone. "
            "`auto`: what the kind takes; of two, explicit when both sides are bound, else stream or lag."
        ),
    ] = "auto"
    lag: Annotated[
        int, doc("`lag`: how many samples of the key the first of a pair lies before the second.", ge=1, le=10_000)
    ] = 1
    max_gap: Annotated[
        float,
        duration(
            "`lag`: most event time between two samples of a key that follow one another; over a longer gap, or where "
            "time goes backwards, there are no pairs. 0: no limit.",
            ge=0,
        ),
    ] = 0.0
