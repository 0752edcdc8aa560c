"""Real workers on three real brokers while both are killed and stopped: outputs and state of an undisturbed run."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from benchmarks.chaos.arena import Arena, three_brokers
from benchmarks.chaos.faults import Fault, plan
from benchmarks.chaos.report import table
from benchmarks.chaos.run import Chaos
from benchmarks.chaos.traffic import Shape

SEED = 5


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_chaos_changes_no_bit(tmp_path: Path) -> None:
    shape = Shape(mode="stream", partitions=3, steady=50, moody=10, ttl_s=150, change_every=400, seed=SEED)
    with three_brokers() as kafka:
        arena = Arena(kafka, tmp_path, f"chaos-{secrets.token_hex(3)}", "kafka-python", shape, "interval = 3\n")
        chaos = Chaos(arena, short_plan(), seed=SEED, workers=2, rate=400, budget_s=240.0)
        report = chaos.run()
    assert report.good, table(report)
    assert len(report.struck) == report.planned, table(report)


def short_plan() -> dict[str, list[Fault]]:
    """A few kinds that take little time, in a fixed order; both lanes strike at once."""
    workers = ("worker SIGKILL", "worker SIGKILL, again while it starts or restores", "worker SIGTERM")
    brokers = ("broker SIGKILL", "broker SIGSTOP", "broker restart")
    return {
        "worker": [Fault(n, "worker", kind, n % 2, 1.0, 1.0) for n, kind in enumerate((*workers, workers[0]), 1)],
        "broker": [Fault(n, "broker", kind, n % 3, 3.0, 1.0) for n, kind in enumerate(brokers, 5)],
    }


def test_a_seed_gives_the_same_faults_and_every_kind_has_its_turn() -> None:
    lanes = plan(SEED, 60, 3)
    assert lanes == plan(SEED, 60, 3)
    assert lanes != plan(SEED + 1, 60, 3)
    assert sum(map(len, lanes.values())) == 60
    assert len({fault.kind for lane in lanes.values() for fault in lane}) == 12
