"""Section `model`: which kind of model, and the settings of the default one, the likelihood ratio."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc
from kstream_worker.config.redact import ModelOptions


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each key has a model of. `ratio` is the relative ratio live / ((1 - alpha) reference + alpha live); other
    kinds have a section of their own, those of other packages `model.options`.
    """

    kind: Annotated[
        str,
        doc(
            "`ratio`, another built-in kind ([models.md](models.md)), or the name under which a package registers one "
            "in the entry-point group `kstream_worker.models`."
        ),
    ] = "ratio"
    alpha: Annotated[
        float, doc("`ratio`: share of the live side in the denominator; bounds the ratio by 1 / alpha.", gt=0, lt=1)
    ] = 0.1
    atoms: Annotated[
        int | None,
        doc(
            "`ratio`: kernel functions per key; memory grows with the square. None: the model's own default.",
            ge=2,
            le=1000,
        ),
    ] = None
    seed: Annotated[int, doc("Seed of all random draws; with the key it fixes every result.", ge=0, le=2**63 - 1)] = 0
    options: Annotated[ModelOptions, doc("Settings of a kind of another package, by the names it gives them.")] = (
        msgspec.field(default_factory=ModelOptions)
    )
