"""Keys and times as people read them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime


def key_name(key: bytes) -> str:
    """The key as text where it is printable UTF-8, else in base64 (what `--base64` takes) behind `base64:`."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and text and not text.startswith("base64:"):
        return text
    return "base64:" + base64.b64encode(key).decode()


def time_name(time_ms: int) -> str:
    """A time in ISO 8601, to the second; a dash where it is unknown."""
    if time_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
