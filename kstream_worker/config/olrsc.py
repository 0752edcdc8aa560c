"""Section `olrsc`: low-rank subspaces of a key's sensors."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc


class OlrscConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Robust online low-rank representation: cleaned samples, corrupted sensors by name, subspace labels.

    Lengths are in robust standard deviations of each sensor over its warm-up.
    """

    rank: Annotated[
        int | None,
        doc(
            "Directions of the basis, below the number of sensors: how many independent causes they follow, at most. "
            "None: two fifths of the sensors, at most 40.",
            ge=1,
            le=1000,
        ),
    ] = None
    lambda2: Annotated[
        float,
        doc(
            "A sensor counts as corrupted where it is farther than that from what the others say; about twice the "
            "sensors' noise does well.",
            gt=0,
        ),
    ] = 0.2
    forgetting: Annotated[float, doc("Factor per sample by which the past fades; 1 forgets nothing.", gt=0, le=1)] = (
        0.998
    )
    shrinkage: Annotated[float, doc("Directions weaker than that are left out.", ge=0)] = 0.05
    warmup: Annotated[int, doc("Samples of a key that fix scales and the first basis.", ge=20, le=10_000)] = 200
    settle: Annotated[
        int, doc("Samples behind the warm-up without scores, while the basis still improves.", ge=0, le=1_000_000)
    ] = 300
    subspaces: Annotated[
        int | None, doc("Subspaces that samples are told apart by. None: as many as are found.", ge=1, le=8)
    ] = None
    reservoir: Annotated[
        int | None,
        doc("Cleaned samples kept to find the subspaces. None: 10 per direction, from 100 to 400.", ge=20, le=1000),
    ] = None
