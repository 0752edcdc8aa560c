"""Event times as clocks on the wall show them: what a daily season follows where clocks are changed twice a year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import numpy as np

from kstream_worker.records import IntColumn

DAY_MS = 86_400_000
_STEP_MS = 900_000  # offsets change at full quarters of an hour of UTC, in all zones since 1972
_SECOND_MS = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_STEP, _LAST_STEP = -2_000_000, 70_000_000  # of the years 1912 to 3966; beyond, the offset of the nearest


class CivilClock:
    """Local times of one zone of the tz database.

    Args:
        zone: its name, such as `Europe/Berlin`.

    Raises:
        ValueError: no such zone is known here.
    """

    def __init__(self, zone: str) -> None:
        self._zone = None if zone == "UTC" else _zone(zone)
        self._offset = lru_cache(maxsize=65_536)(self._offset_of)

    def local(self, times: IntColumn) -> IntColumn:
        """Times less UTC plus local: int64[n] milliseconds, for int64[n] milliseconds since 1970."""
        if self._zone is None or not len(times):
            return times
        steps, place = np.unique(np.clip(times // _STEP_MS, _FIRST_STEP, _LAST_STEP), return_inverse=True)
        offsets = np.array([self._offset(int(step)) for step in steps], dtype=np.int64)
        local: IntColumn = times + offsets[place]
        return local

    def _offset_of(self, step: int) -> int:
        at = _EPOCH + timedelta(milliseconds=step * _STEP_MS)
        offset = at.astimezone(self._zone).utcoffset() or timedelta(0)
        return round(offset.total_seconds()) * _SECOND_MS


def _zone(name: str) -> ZoneInfo:
    """Of the package `tzdata`, never of the system: processes of one release must agree on every offset."""
    database = resources.files("tzdata")
    if name not in database.joinpath("zones").read_text(encoding="ascii").split():
        raise ValueError(f"time_zone is {name!r}: take a name of the tz database, such as Europe/Berlin")
    with database.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
