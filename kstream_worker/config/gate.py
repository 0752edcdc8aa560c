"""Section `gate`: how many refused records are a fault upstream rather than noise."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc


class GateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Beyond either limit the worker stops with exit code 1: a schema change must not be swallowed."""

    max_reject_ratio: Annotated[
        float, doc("Largest share of refused records within the window; 1 switches this off.", gt=0, le=1)
    ] = 0.5
    window_records: Annotated[int, doc("Records of a partition in the window.", ge=1)] = 1000
    max_consecutive_rejects: Annotated[
        int, doc("Refused records of a partition in a row that stop the worker.", ge=1)
    ] = 100
