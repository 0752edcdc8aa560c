"""Section `cme`: conditional mean embeddings."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc


class CmeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `model.kind: cme`: what y follows from x, learned online; alarms when y stops following."""

    atoms: Annotated[int, doc("Most pairs in the dictionary; memory and time grow with the square.", ge=8, le=400)] = 48
    warmup: Annotated[
        int,
        doc(
            "Pairs that fix scales and kernel widths; then estimates follow, after three times as many scores.",
            ge=20,
            le=10_000,
        ),
    ] = 200
    forgetting: Annotated[
        float,
        doc(
            "Weight of a pair relative to the next one; .998 remembers some 500 pairs, 1 all. At least .9764 with 48 "
            "atoms, .9972 with 400.",
            gt=0,
            le=1,
        ),
    ] = 0.998
    coverage: Annotated[
        float,
        doc(
            "Share of records whose y lies between `lower` and `upper` in the long run, for each value of y; half of "
            "the rest lies beyond either.",
            ge=0.5,
            le=0.999,
        ),
    ] = 0.9
