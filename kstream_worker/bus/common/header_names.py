"""What stands for the headers of a record of which one has a name that is not UTF-8."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

UNREADABLE: list[tuple[str, bytes]] = [("__kstream.original.headers", b"unreadable")]


def warn(offset: int) -> None:
    """Tell that a record is read without its headers."""
    log.warning("a header of the record at offset %d is not UTF-8: its headers are left out", offset)
