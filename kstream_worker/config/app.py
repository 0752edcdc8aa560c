"""Section `app`: who this application is."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kstream_worker.config.fields import doc


class AppConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identity of the application; all its workers share it."""

    id: Annotated[
        str,
        doc("Name of the application: prefix of topics and transactional ids, default of the consumer group."),
    ]
    model_epoch: Annotated[
        int,
        doc("Part of the `id` of every output record; a new number says that all models started afresh.", ge=1),
    ] = 1
