"""Section `koopman`: the operator of a key's dynamics, and what is told of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc, duration


class KoopmanConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`model.kind: koopman`: dynamics of a state, its leading modes and forecasts ([models.md](models.md#koopman))."""

    atoms: Annotated[int, doc("Most pairs in the dictionary; memory and time grow with the square.", ge=8, le=400)] = 48
    warmup: Annotated[int, doc("Pairs that fix scales, kernel width and sampling interval.", ge=20, le=10_000)] = 200
    horizon: Annotated[int, doc("Steps of the longer forecast; one step is always forecast.", ge=1, le=1000)] = 10
    modes: Annotated[int, doc("Eigenvalues published, a conjugate pair as one.", ge=1, le=32)] = 4
    forgetting: Annotated[
        float,
        doc(
            "Weight of a pair relative to the next one; 1 forgets nothing. At least .9764 with 48 atoms, .9972 with "
            "400.",
            gt=0,
            le=1,
        ),
    ] = 0.999
    lag: Annotated[
        int,
        doc(
            "Pairs between a state as y and the same state as x: with `pairing.mode` lag, the value of `pairing.lag`.",
            ge=1,
            le=1000,
        ),
    ] = 1
    interval: Annotated[float, duration("From x to y. 0: `lag` times the usual difference of event times.", ge=0)] = 0.0
