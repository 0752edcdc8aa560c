"""Health, readiness, metrics and the list of keys in alarm over HTTP."""

from __future__ import annotations

from kstream_worker.http.server import StatusServer
from kstream_worker.http.status import Status

__all__ = ["Status", "StatusServer"]
