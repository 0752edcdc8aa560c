"""Section `model`: the estimator of the likelihood ratio."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Online estimation of the relative ratio live / ((1 - alpha) reference + alpha live)."""

    alpha: Annotated[
        float, doc("Share of the live side in the denominator; bounds the ratio by 1 / alpha.", gt=0, lt=1)
    ] = 0.1
    atoms: Annotated[
        int | None,
        doc("Kernel functions per key; memory grows with the square. None: the model's own default.", ge=2, le=1000),
    ] = None
    seed: Annotated[int, doc("Seed of all random draws; with the key it fixes every result.", ge=0, le=2**63 - 1)] = 0
