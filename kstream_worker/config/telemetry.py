"""Section `telemetry`: metrics, health and logs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP endpoint has no authentication and `/alarms` names keys: by default it is bound to this machine."""

    host: Annotated[
        str, doc("Address of `/metrics`, `/healthz`, `/readyz` and `/alarms`. In a container: `0.0.0.0`.")
    ] = "127.0.0.1"
    port: Annotated[int | None, doc("Its port; 0 takes a free one, `none` switches it off.", ge=0, le=65535)] = 9400
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least level of logs on standard error.")
    ] = "info"
    log_format: Annotated[Literal["json", "console"], doc("One JSON object a line, or text for people.")] = "json"
