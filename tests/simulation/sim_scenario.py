"""What one simulation is: its configuration and its schedule, both drawn from its seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim_script import ScriptSettings

from kstream_worker.bus.fake import CommitFault
from kstream_worker.bus.fake.faults import Point

Action = tuple[Any, ...]

SEEDS_PER_SCRIPT = 8
ARLS = (5.0, 9.0, 4.0)
REAL_ARLS = (20.0, 60.0, 12.0)
POINTS: tuple[Point, ...] = (
    "start",
    "poll",
    "committed",
    "reader",
    "reader.poll",
    "cluster",
    "writer.start",
    "commit",
    "commit.sent",
    "commit.done",
)
_PATIENT: tuple[Point, ...] = ("start", "poll", "committed", "reader", "reader.poll", "cluster", "writer.start")


@dataclass(frozen=True)
class Scenario:
    """The configuration.

    Attributes:
        seed: what all is drawn from.
        script: of the input.
        real: whether the models are real ones.
        processes: that share the work.
        ttl_ms: of silent keys; 0 for ever.
        silence_ms: `detector.silence`.
        max_keys: of a partition.
        interval_s: `state.interval`.
        replay_records: `state.replay_records`.
        floor_bytes_s: least pace of snapshots.
        max_bytes: of snapshots in one commit, and of the outbox.
        format: of the state.
        poll_sizes: most records of successive polls.
    """

    seed: int
    script: ScriptSettings
    real: bool
    processes: int
    ttl_ms: int
    silence_ms: int
    max_keys: int
    interval_s: float
    replay_records: int
    floor_bytes_s: float
    max_bytes: int
    format: int
    poll_sizes: tuple[int, ...]

    @property
    def arls(self) -> tuple[float, ...]:
        """Average run lengths, the first to begin with."""
        return REAL_ARLS if self.real else ARLS

    @property
    def identities(self) -> tuple[str, ...]:
        """Names of the processes."""
        return tuple(f"app-{i}" for i in range(self.processes))


def scenario_of(seed: int) -> Scenario:
    """The scenario of a seed; `SEEDS_PER_SCRIPT` successive seeds share a script, and so an oracle."""
    shape = random.Random(f"shape {seed // SEEDS_PER_SCRIPT}")
    draw = random.Random(f"scenario {seed}")
    real = seed // SEEDS_PER_SCRIPT % 16 == 9
    ttl_ms = shape.choice((0, 1600, 1600, 3200, 6400))
    silence = random.Random(f"silence {seed // SEEDS_PER_SCRIPT}")
    script = ScriptSettings(
        seed=seed // SEEDS_PER_SCRIPT,
        partitions=shape.choice((1, 1, 2, 2, 3)),
        records=80 if real else shape.randint(12, 32),
        keys=2 if real else shape.randint(2, 9),
        ttl_ms=ttl_ms or 1600,
        poison=shape.choice((0,) * 9 + (1, 1, 2)),
        changes=real,
    )
    return Scenario(
        seed=seed,
        script=script,
        real=real,
        processes=draw.choice((1, 1, 2, 2, 3)),
        ttl_ms=ttl_ms,
        silence_ms=silence.choice((0, 100, 400, 1500)),
        max_keys=shape.choice((2, 3, 4, 100)),
        interval_s=draw.choice((0.0, 0.1, 0.5, 3.0, 1e6)),
        replay_records=draw.choice((5, 20, 60, 1_000_000)),
        floor_bytes_s=draw.choice((50, 300, 2000, 1e6)),
        max_bytes=draw.choice((200, 2000, 1_000_000, 1_000_000)),
        format=draw.randint(1, 2),
        poll_sizes=draw.choice(((1, 4, 2), (7, 3), (2, 9, 5), (40,))),
    )


def schedule_of(scenario: Scenario) -> list[Action]:
    """All actions, in order; each says all that it needs, so that any of them can be left out."""
    draw = random.Random(f"schedule {scenario.seed}")
    drawers = _drawers(draw, scenario)
    weights = [weight for weight, _ in drawers]
    return [drawer() for _, drawer in draw.choices(drawers, weights, k=draw.randint(10, 60))]


def _drawers(draw: random.Random, scenario: Scenario) -> list[tuple[float, Callable[[], Action]]]:
    trouble = draw.choice((0.3, 1.0, 1.0, 2.5))

    def who() -> str:
        return draw.choice(scenario.identities)

    def partition() -> int:
        return draw.randrange(scenario.script.partitions)

    faults = [fault.value for fault in CommitFault]
    return [
        (30.0, lambda: ("turn", who(), draw.randint(1, 5))),
        (12.0, lambda: ("feed", partition(), draw.randint(1, 20))),
        (4.0 * trouble, lambda: ("commit fault", draw.choice(faults), draw.randint(1, 3))),
        (4.0 * trouble, lambda: ("crash", who(), draw.choice(POINTS), draw.randint(1, 3))),
        (3.0 * trouble, lambda: ("aim", draw.choice(faults))),
        (3.0 * trouble, lambda: ("kill", who())),
        (2.0 * trouble, lambda: ("error", who(), draw.choice(_PATIENT), draw.randint(1, 5))),
        (2.0 * trouble, lambda: ("rebalance", who(), draw.choice(("revoked", "lost")), draw.randint(0, 2))),
        (1.0 * trouble, lambda: ("evict", who())),
        (0.5 * trouble, lambda: ("lose", partition())),
        (1.0 * trouble, lambda: ("model", who())),
        (2.0, lambda: ("stop", who(), draw.random() < 0.3)),
        (2.0, lambda: ("compact",)),
        (1.5, lambda: ("truncate",)),
        (0.7 * trouble, lambda: ("open", partition())),
        (1.0 * trouble, lambda: ("close", partition(), draw.random() < 0.3)),
        (0.5, lambda: ("arl", who(), draw.randrange(3))),
        (2.0, lambda: ("sleep", draw.choice((0.3, 2.0, 12.0, 40.0)))),
        (0.5 * trouble, lambda: ("twin", who())),
    ]
