"""One text for a topic id, whichever client read it: state written through one is checked through the other."""

from __future__ import annotations

import base64

_NONE = bytes(16)


def topic_id_text(raw: bytes) -> str:
    """The 16 bytes of a topic id as Kafka's tools print them (base64url, 22 characters); empty for none."""
    return "" if raw == _NONE else base64.urlsafe_b64encode(raw).decode().rstrip("=")
