"""What is replayed: four entities with two real CPU or load series each; two of them get a change that they did not
have.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

import numpy as np

from kstream_worker.records import FloatMatrix, IntColumn

FEATURES = ("cpu", "load")


@dataclass(frozen=True, slots=True)
class Entity:
    """Two series on one clock, under one key.

    Attributes:
        name: the record key.
        series: files of `cpu` and `load`.
        rows: how many are replayed.
        change: what is done to the series, in words; empty for nothing, the change is the data's own.
        column: the feature that is changed.
        change_row: the first changed row.
    """

    name: str
    series: tuple[str, str]
    rows: int
    change: str = ""
    column: int = 0
    change_row: int = 0


@dataclass(frozen=True, slots=True)
class Track:
    """An entity's samples: times int64[n] in milliseconds, values float64[n, 2]."""

    entity: Entity
    times: IntColumn
    values: FloatMatrix

    @property
    def injected_at(self) -> int | None:
        """Event time of the change that was put in."""
        return int(self.times[self.entity.change_row]) if self.entity.change else None


ENTITIES = (
    Entity("web", ("ec2_cpu_utilization_825cc2", "elb_request_count_8c0756"), 4000),
    Entity("database", ("rds_cpu_utilization_cc0c53", "ec2_cpu_utilization_53ea38"), 4000),
    Entity("app", ("ec2_cpu_utilization_24ae8d", "ec2_cpu_utilization_53ea38"), 2600, "level", 0, 1400),
    Entity("cache", ("ec2_cpu_utilization_53ea38", "rds_cpu_utilization_cc0c53"), 2600, "spread", 1, 1400),
)


def load_tracks() -> list[Track]:
    """All entities with their changes, as shipped with the package."""
    return [_track(entity) for entity in ENTITIES]


def records(tracks: list[Track]) -> Iterator[tuple[str, int, bytes]]:
    """(key, event time, JSON value) of all samples in time order."""
    rows = sorted((int(track.times[i]), k, i) for k, track in enumerate(tracks) for i in range(len(track.times)))
    for time_ms, k, i in rows:
        track = tracks[k]
        metrics = dict(zip(FEATURES, track.values[i].tolist(), strict=True))
        value = {"host": track.entity.name, "ts": time_ms, "metrics": metrics}
        yield track.entity.name, time_ms, json.dumps(value).encode()


def _track(entity: Entity) -> Track:
    first, second = (_series(name) for name in entity.series)
    times = sorted(first.keys() & second.keys())[: entity.rows]
    values = np.array([[first[t], second[t]] for t in times])
    if entity.change:
        values[:, entity.column] = _changed(values[:, entity.column], entity)
    return Track(entity, np.array(times, dtype=np.int64), values)


def _changed(column: np.ndarray, entity: Entity) -> np.ndarray:
    """A step by 1.5 standard deviations, or deviations from the median times 2.5."""
    before, after = column[: entity.change_row], column[entity.change_row :].copy()
    if entity.change == "level":
        after += 1.5 * before.std()
    else:
        median = np.median(before)
        after = np.maximum(median + 2.5 * (after - median), 0.0)
    return np.concatenate([before, after.round(4)])


def _series(name: str) -> dict[int, float]:
    """Values by event time; of a repeated time the last one."""
    packed = files(__package__).joinpath("data", f"{name}.csv.gz").read_bytes()
    rows = csv.DictReader(gzip.decompress(packed).decode().splitlines())
    return {_epoch_ms(row["timestamp"]): float(row["value"]) for row in rows}


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
