"""A labelled series as every detector gets it, what a detector answers, and where the local data is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """One series.

    Attributes:
        name: unique within its data set.
        values: float64[n, d], finite.
        times: int64[n], milliseconds; NAB has repeated and even falling ones.
        features: d names.
        training: rows at the start that no score counts: detectors may learn from them.
    """

    name: str
    values: Floats
    times: Ints
    features: tuple[str, ...]
    training: int

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True, slots=True)
class Found:
    """What a detector says of a series.

    Attributes:
        alarms: rows at which it raised an alarm, ascending.
        changes: for each alarm the row at which it says the change began, at most the alarm's.
        levels: for each alarm the level of its guarantee; empty of detectors that state none.
        leading: for each alarm the feature that it names first; empty of detectors that name none.
        repeats: for each alarm whether it repeats one whose incident is open; empty of detectors without incidents.
    """

    alarms: tuple[int, ...]
    changes: tuple[int, ...]
    levels: tuple[str, ...] = ()
    leading: tuple[int, ...] = ()
    repeats: tuple[bool, ...] = ()

    @staticmethod
    def at(rows: list[int]) -> Found:
        """Alarms of a detector that does not date changes."""
        return Found(tuple(rows), tuple(rows))


def milliseconds(stamps: Sequence[str]) -> Ints:
    """ISO times without an offset, taken as UTC, since the epoch."""
    return np.array(stamps, dtype="datetime64[ms]").astype(np.int64)


def data_folder() -> Path:
    """The local data: `KSTREAM_DATA`, or `../shared/data` beside the repository."""
    return Path(os.environ.get("KSTREAM_DATA") or Path(__file__).parents[3] / "shared" / "data")
