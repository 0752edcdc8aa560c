"""Retention deletes records that are still needed: named and refused, then gone on from as the policy says."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.chaos import client
from benchmarks.chaos.arena import Arena
from benchmarks.chaos.stage import Stage, Verdict, once_each

MakeArena = Callable[[str], Arena]
SLOW = "interval = 3600\n"  # no key is snapshotted unless its alarm moves: much is to be read again
TICKS = 250


def passes_replay(make: MakeArena, policy: str) -> Verdict:
    """Retention passes `replay_from`, but not the committed position: models cannot be brought up to date."""
    verdict = Verdict(f"retention passes replay_from, then {policy}")
    stage = Stage(make(SLOW))
    try:
        work_and_die(stage, verdict)
        cut = {p: (h.replay_from + h.offset) // 2 for p, h in stage.headers().items()}
        client.delete_records(stage.arena.bootstrap, stage.arena.topic, cut)
        refused(stage, verdict, ("retention", "on_offset_mismatch"))
        goes_on(stage, verdict, policy)
        tally = stage.compare(("estimates", "dead-letters"), state=False)
        verdict.check(once_each(tally), f"each record once in spite of it: {counts(tally)}")
    finally:
        stage.close()
    return verdict


def passes_position(make: MakeArena, policy: str) -> Verdict:
    """Retention passes the committed position too: records are lost, and their number is named."""
    verdict = Verdict(f"retention passes the committed position, then {policy}")
    stage = Stage(make(SLOW))
    try:
        work_and_die(stage, verdict)
        at = {p: h.offset for p, h in stage.headers().items()}
        stage.produce(TICKS)
        cut = {p: offset + 500 for p, offset in at.items()}
        client.delete_records(stage.arena.bootstrap, stage.arena.topic, cut)
        why = refused(stage, verdict, ("retention", "on_offset_mismatch"))
        verdict.check("500 offsets were deleted before they were read" in why, "it names the number that nobody read")
        goes_on(stage, verdict, policy)
        gone = {p: range(offset, cut[p]) for p, offset in at.items()}
        tally = stage.compare(("estimates", "dead-letters"), state=False, lost=gone)
        verdict.check(once_each(tally), f"each record that was left once: {counts(tally)}")
    finally:
        stage.close()
    return verdict


def work_and_die(stage: Stage, verdict: Verdict) -> None:
    stage.produce(TICKS)
    stage.start()
    verdict.check(stage.caught_up(), "works")
    stage.kill()
    behind = {p: h.offset - h.replay_from for p, h in stage.headers().items()}
    enough = len(behind) == stage.arena.partitions and min(behind.values(), default=0) > 100
    verdict.check(enough, f"after SIGKILL records are to be read again: {behind}")


def refused(stage: Stage, verdict: Verdict, words: tuple[str, ...]) -> str:
    stage.start()
    code, why = stage.refusal()
    said = all(word in why for word in words)
    verdict.check(code in (1, 78) and said, f"ends with {code} and says: {why}")
    return why


def goes_on(stage: Stage, verdict: Verdict, policy: str) -> None:
    stage.start("--set", f"state.on_offset_mismatch={policy}")
    stage.produce(TICKS)
    verdict.check(stage.caught_up(), f"goes on with {policy}")
    verdict.check(stage.terminate() == 0, "ends with 0 at SIGTERM")
    stage.start()
    stage.produce(20)
    verdict.check(stage.caught_up(), "and starts again under the default policy")
    verdict.check(stage.terminate() == 0, "ends with 0 at SIGTERM")


def counts(tally: object) -> str:
    names = ("outputs", "lost", "doubled", "strange", "out_of_order")
    return ", ".join(f"{getattr(tally, name)} {name.replace('_', ' ')}" for name in names)
