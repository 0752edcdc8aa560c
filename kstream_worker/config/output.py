"""Section `output`: where estimates, alarms and dead letters go."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc, size


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Output topics, or names of output files. Consumers must read `read_committed`."""

    estimates: Annotated[str, doc("Topic of the estimates. Empty: `<app.id>-estimates`.")] = ""
    alarms: Annotated[str, doc("Topic of alarms raised and cleared. Empty: `<app.id>-alarms`.")] = ""
    dead_letters: Annotated[str, doc("Topic of refused records. Empty: `<app.id>-dead-letters`.")] = ""
    estimate_every: Annotated[int, doc("Publish every n-th estimate of a key.", ge=1)] = 1
    max_dead_letter_bytes: Annotated[
        int,
        size(
            "Largest dead letter; longer values are cut, with their length and hash in headers. Stay below the "
            "topic's `max.message.bytes`.",
            ge=1024,
        ),
    ] = 896 * 1024
