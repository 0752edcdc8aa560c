"""Section `pairing`: what a model compares with what."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc


class PairingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How records become what the models see."""

    mode: Annotated[
        Literal["auto", "explicit", "stream", "reference"],
        doc(
            "`explicit`: each record holds a reference sample x and a live sample y. `stream`: one sample a "
            "record, the key's own past is the reference. `reference`: likewise, but that past is frozen "
            "(section `reference`): drift from commissioning. `auto`: explicit when both sides are bound, else stream."
        ),
    ] = "auto"
