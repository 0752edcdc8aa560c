"""Section `worker`: the loop itself."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import duration


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the loop."""

    shutdown_grace: Annotated[
        float, duration("Time to finish and commit after SIGTERM or SIGINT; a second signal forces.", ge=1)
    ] = 25.0
    progress_timeout: Annotated[
        float,
        duration(
            "Without a heartbeat or progress for so long, `/healthz` fails. A partition that stands still with records "
            "to read is started again after half of it.",
            ge=5,
        ),
    ] = 120.0
