"""Section `commit`: the one transaction that makes outputs and input positions visible together."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import duration, size


class CommitConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often, how much, and how patiently."""

    interval: Annotated[
        float, duration("Time between commits; outputs become visible at this rate. At least 200ms.")
    ] = 1.0
    max_bytes: Annotated[
        int,
        size("Outputs waiting in the process at which a commit comes early; while that fails, input pauses.", ge=65536),
    ] = 16 * 2**20
    timeout: Annotated[float, duration("Longest time that one commit call may take.", ge=1)] = 20.0
    give_up: Annotated[
        float,
        duration("How long commits, or the bus, may fail in a row before the worker ends with exit code 1.", ge=1),
    ] = 300.0
