"""What strikes whom and when: drawn from a seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Lane = Literal["worker", "broker"]

# Weights of the kinds; a lane strikes with one fault at a time, both lanes at once.
WORKER_KINDS: Mapping[str, int] = MappingProxyType(
    {
        "worker SIGKILL": 30,
        "worker SIGKILL, again while it starts or restores": 14,
        "all workers SIGKILL": 8,
        "worker SIGSTOP beyond its session": 18,
        "worker SIGSTOP for a moment": 8,
        "worker SIGTERM": 10,
        "rolling restart of the workers": 5,
        "second process of the same instance id": 7,
    }
)
BROKER_KINDS: Mapping[str, int] = MappingProxyType(
    {
        "broker SIGKILL": 35,
        "broker SIGSTOP": 35,
        "broker restart": 20,
        "rolling restart of the brokers": 10,
    }
)
_HOLD_S: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "worker SIGKILL, again while it starts or restores": (0.3, 6.0),
        "worker SIGSTOP beyond its session": (11.0, 14.0),
        "worker SIGSTOP for a moment": (0.5, 4.0),
        "broker SIGKILL": (0.5, 8.0),
        "broker SIGSTOP": (2.0, 10.0),
    }
)
_PAUSE_S = (0.2, 4.0)
_BROKER_SHARE = 0.28


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        number: from 1, over both lanes.
        lane: whose.
        kind: what.
        victim: number of the worker or broker, where it is one.
        hold_s: how long it lasts, where that is up to us.
        pause_s: time since the lane has recovered from the former one.
    """

    number: int
    lane: Lane
    kind: str
    victim: int
    hold_s: float
    pause_s: float


def plan(seed: int, count: int, workers: int, brokers: int = 3) -> dict[Lane, list[Fault]]:
    """`count` faults, shared between the lanes; every kind occurs where there is room for it."""
    draw = random.Random(seed)
    for_brokers = round(count * _BROKER_SHARE)
    kinds: list[tuple[Lane, str]] = [
        *(("worker", kind) for kind in _draw_kinds(draw, WORKER_KINDS, count - for_brokers)),
        *(("broker", kind) for kind in _draw_kinds(draw, BROKER_KINDS, for_brokers)),
    ]
    lanes: dict[Lane, list[Fault]] = {"worker": [], "broker": []}
    for number, (lane, kind) in enumerate(kinds, 1):
        victim = draw.randrange(workers if lane == "worker" else brokers)
        hold_s = draw.uniform(*_HOLD_S.get(kind, (0.0, 0.0)))
        lanes[lane].append(Fault(number, lane, kind, victim, hold_s, draw.uniform(*_PAUSE_S)))
    return lanes


def _draw_kinds(draw: random.Random, weights: Mapping[str, int], count: int) -> list[str]:
    """Each kind once, heaviest first, as far as `count` reaches; the rest by weight; shuffled."""
    names = sorted(weights, key=lambda name: -weights[name])
    first = names[:count]
    rest = draw.choices(names, [weights[name] for name in names], k=count - len(first))
    chosen = first + rest
    draw.shuffle(chosen)
    return chosen
