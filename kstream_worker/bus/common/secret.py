"""Texts and files of client settings."""

from __future__ import annotations

from pathlib import Path


class Secret(str):
    """A text that does not show in `repr`, so that no log line of a whole mapping holds it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def unreadable(path: Path) -> str:
    """Why a file cannot be read; empty when it can."""
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
