"""The state topic is cut, or deleted and made again: named and refused, then models start afresh."""

from __future__ import annotations

from benchmarks.chaos import client
from benchmarks.chaos.arena import Arena
from benchmarks.chaos.lost_input import TICKS, MakeArena, counts, goes_on, refused
from benchmarks.chaos.stage import Stage, Verdict, once_each


def truncated(make: MakeArena) -> Verdict:
    """All records of the state topic are deleted, as by a wrong `cleanup.policy`."""
    return _shortened("state topic truncated, then discard_state", make(""), 0)


def cut(make: MakeArena) -> Verdict:
    """Only the last records of the state topic are left: the header is there, snapshots are missing."""
    return _shortened("state topic cut down to its last records, then discard_state", make(""), 5)


def _shortened(name: str, arena: Arena, left: int) -> Verdict:
    verdict = Verdict(name)
    stage = Stage(arena)
    try:
        _work(stage, verdict)
        ends = client.ends(arena.bootstrap, arena.state_topic, arena.partitions)
        # Records of a compacted topic cannot be deleted by hand; a wrong policy that someone mends later can.
        client.set_policy(arena.bootstrap, arena.state_topic, "delete")
        client.delete_records(arena.bootstrap, arena.state_topic, {p: end - left for p, end in ends.items()})
        client.set_policy(arena.bootstrap, arena.state_topic, "compact")
        _go_on(stage, verdict)
    finally:
        stage.close()
    return verdict


def deleted(make: MakeArena) -> Verdict:
    """The state topic is deleted; `topics --create` makes an empty one."""
    verdict = Verdict("state topic deleted, then discard_state")
    stage = Stage(make(""))
    try:
        _work(stage, verdict)
        client.delete_topic(stage.arena.bootstrap, stage.arena.state_topic)
        why = refused(stage, verdict, (stage.arena.state_topic,))
        verdict.check("create" in why, "the message names the remedy for a missing topic")
        stage.arena.command("topics", "--create")
        _go_on(stage, verdict)
    finally:
        stage.close()
    return verdict


def _work(stage: Stage, verdict: Verdict) -> None:
    stage.produce(TICKS)
    stage.start()
    verdict.check(stage.caught_up(), "works")
    verdict.check(stage.terminate() == 0, "ends with 0 at SIGTERM")


def _go_on(stage: Stage, verdict: Verdict) -> None:
    refused(stage, verdict, ("state", "discard_state"))
    goes_on(stage, verdict, "discard_state")
    tally = stage.compare(("estimates", "dead-letters"), state=False)
    verdict.check(once_each(tally), f"each record once: {counts(tally)}")
