"""Durations and sizes as people write them: `1s`, `200ms`, `1d`, `16MiB`."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SIZES_BY_LOWER = {name.lower(): factor for name, factor in _SIZES.items()}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")

DURATION_FORMS = "a number of seconds, or text such as 200ms, 1s, 5m, 2h, 1d"
SIZE_FORMS = "a number of bytes, or text such as 512KiB, 16MiB, 1MB"


def _split(text: str, forms: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"expected {forms}")
    return float(match[1]), match[2]


def parse_duration(value: str | int | float) -> float:
    """Seconds of a duration.

    Raises:
        ValueError: not a duration, negative or not finite.
    """
    if isinstance(value, str):
        number, unit = _split(value, DURATION_FORMS)
        factor = _DURATIONS.get(unit or "s")
        if factor is None:
            raise ValueError(f"unknown unit {unit!r}, expected {DURATION_FORMS}")
        seconds = number * factor
    else:
        seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"expected {DURATION_FORMS}, not negative")
    return seconds


def parse_size(value: str | int | float) -> int:
    """Bytes of a size.

    Raises:
        ValueError: not a size, negative or not a whole number of bytes.
    """
    if isinstance(value, str):
        number, unit = _split(value, SIZE_FORMS)
        factor = _SIZES_BY_LOWER.get((unit or "B").lower())
        if factor is None:
            raise ValueError(f"unknown unit {unit!r}, expected {SIZE_FORMS}")
        number *= factor
    else:
        number = float(value)
    if not math.isfinite(number) or number < 0 or number != int(number):
        raise ValueError(f"expected {SIZE_FORMS}, whole and not negative")
    return int(number)


def parse_time(text: str) -> int:
    """A time in ISO 8601 as milliseconds since the epoch.

    Raises:
        ValueError: not a time, or one without a zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("the time has no zone; end it with Z or an offset such as +02:00")
    return round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)


def format_duration(seconds: float) -> str:
    """The shortest exact text of a duration: `1s`, `200ms`, `1d`."""
    for unit in ("d", "h", "m", "s", "ms"):
        count = seconds / _DURATIONS[unit]
        if count >= 1 and abs(count - round(count)) < 1e-9:
            return f"{round(count)}{unit}"
    return f"{seconds:g}s"


def format_size(size: int) -> str:
    """The shortest exact text of a size: `16MiB`, `896KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return f"{size}B"
