"""A second process with the same instance id: one of both ends and says why, the other goes on."""

from __future__ import annotations

import re

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.faults import Fault
from benchmarks.chaos.run import Chaos
from benchmarks.chaos.stage import Verdict

_NAMED = re.compile(r"(instance id|transactional id).*give each process its own", re.IGNORECASE | re.DOTALL)


def twins(arena: Arena, times: int = 3) -> Verdict:
    """Twice or more, at different workers."""
    verdict = Verdict(f"{arena.client}: a second process of the same instance id")
    kind = "second process of the same instance id"
    faults = [Fault(n + 1, "worker", kind, n % 2, 0.0, 2.0 + 3.0 * n) for n in range(times)]
    report = Chaos(arena, {"worker": faults}, seed=0, workers=2, rate=500, budget_s=300.0).run()
    for first, second, why in report.twins:
        one = first == 1 or second == 1
        which = "the first" if first is not None else "the second"
        verdict.check(one, f"one ends, {which}, with code {first or second}")
        verdict.check(_NAMED.search(why) is not None, f"and says: {why}")
    verdict.check(len(report.twins) == times, f"{times} second processes")
    if report.put_out:
        verdict.said.append(f"{report.put_out} times the survivor was put out too, and started again")
    verdict.check(not report.unexpected, f"nobody else ends: {report.unexpected}")
    verdict.check(report.tally.clean and report.reached_end, f"outputs and state equal the oracle's: {report.tally}")
    return verdict
