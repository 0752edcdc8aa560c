"""Section `ridge`: windowed kernel ridge with certified solves."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc


class RidgeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prediction of the output side from the input side of each pair, by kernel ridge over a window."""

    window: Annotated[
        int,
        doc(
            "Pairs that a prediction rests on and that a warm-up takes, in fours. Memory of a key and cost of a pair "
            "grow with the square: 36 kB and 5 us at 64, 137 kB and 13 us at 128, 330 kB and 21 us at 200.",
            ge=8,
            le=2000,
        ),
    ] = 128
    tau: Annotated[
        float | None,
        doc(
            "Ridge, for a kernel with k(x, x) = 1 and outputs in their own scales: noise to signal, in variances. "
            "None: chosen at the end of each key's warm-up by the least leave-one-out error.",
            gt=0,
        ),
    ] = None
    tolerance: Annotated[
        float,
        doc(
            "What the residual of the solve must be below to be `certified`, in scales of the output. It bounds the "
            "solve, not the error of the prediction.",
            ge=0,
        ),
    ] = 1e-6
