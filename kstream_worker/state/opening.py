"""From where a partition goes on: what the group's offset, the header and the input say, held against each other.

    the group has committed    header            the partition
    -----------------------    ---------------   ---------------------------------------------
    nothing                    none              begins
    an offset, with a token    the same token    goes on; records since `replay_from` are read again
    anything else              anything else     does not fit: `state.on_offset_mismatch` decides

It does not fit either where the input lost records that would be read again, or is another topic of that name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.records import Committed, TopicPartition
from kstream_worker.state.format import Header

Policy = Literal["fail", "trust_state", "discard_state"]

_POLICIES = (
    "Set state.on_offset_mismatch to trust_state to go on from what the state says, or to discard_state to start the "
    "models of such partitions afresh"
)


@dataclass(frozen=True, slots=True)
class StateIdentity:
    """What must be equal for state to be continued, and what is noted in it.

    Attributes:
        model_epoch: `app.model_epoch`.
        pipeline: fingerprint of bindings, gate, pairing and life of keys.
        bank: fingerprint of the models.
        numerics: version of the arithmetic.
        arl: average run length; may change at any time.
        release: of the program.
    """

    model_epoch: int
    pipeline: str
    bank: str
    numerics: str
    arl: float
    release: str


@dataclass(frozen=True, slots=True)
class Found:
    """What is there when a partition is assigned.

    Attributes:
        partition: of the input.
        committed: position of the group; None for none.
        header: of the state; None for none.
        keys: snapshots found, damaged ones too.
        generation: highest number of any header or snapshot found; -1 for none.
        first: where a partition begins that has neither position nor header.
        earliest: first offset of the input that can be read.
        end: high watermark of the input.
        cluster_id: of the bus.
        topic_id: of the input topic; empty when unknown.
    """

    partition: TopicPartition
    committed: Committed | None
    header: Header | None
    keys: int
    generation: int
    first: int
    earliest: int
    end: int
    cluster_id: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Opening:
    """How a partition goes on.

    Attributes:
        header: to go on from.
        keep: whether the snapshots found are used.
        attempts: starts without progress before this one.
        note: what must not go unsaid; empty for nothing.
    """

    header: Header
    keep: bool = True
    attempts: int = 0
    note: str = ""


def decide(found: Found, ours: StateIdentity, policy: Policy, *, discard: bool) -> Opening:
    """How to go on.

    Args:
        found: what is there.
        ours: what this process is configured to.
        policy: `state.on_offset_mismatch`.
        discard: whether `--discard-state` was given.

    Raises:
        ConfigError: the state is of another configuration.
        Fatal: what is there does not fit together, and the policy is to fail.
    """
    if found.header is None and found.committed is None and not found.keys:
        return Opening(_begin(found, ours, found.first))
    older = found.header is not None and found.header.model_epoch < ours.model_epoch
    if older and discard:
        assert found.header is not None  # noqa: S101 - said by `older`
        return _afresh(found, ours, f"the models of epoch {found.header.model_epoch} are discarded")
    mismatch = _mismatch(found)
    if mismatch is not None:
        return _settle(found, ours, policy, mismatch)
    assert found.header is not None  # noqa: S101 - else it were a mismatch
    _check_configuration(found.partition, found.header, ours, replays=found.header.replay_from < found.header.offset)
    lost = found.earliest - found.header.replay_from
    if lost > 0:
        return _settle(found, ours, policy, _lost(found, found.header, lost))
    return Opening(_go_on(found.header, found, ours), attempts=found.header.attempts)


def _mismatch(found: Found) -> str | None:
    """What does not fit, in words; None when all is well."""
    header, committed = found.header, found.committed
    if header is None:
        at = "" if committed is None else f"the group has committed offset {committed.offset}, but "
        return f"{at}there is no header in the state topic: it was deleted or cut, or belongs to an older release"
    if committed is None:
        at = f"the state is at offset {header.offset}"
        return f"{at}, but the group has no committed offset: it expired or was deleted"
    checks = (
        (
            not _same(header.cluster_id, found.cluster_id),
            f"the state belongs to the cluster {header.cluster_id}, this one is {found.cluster_id}",
        ),
        (
            not _same(header.topic_id, found.topic_id),
            "the input topic was deleted and created again since the state was written",
        ),
        (
            (committed.offset, committed.metadata) != (header.offset, header.token),
            f"the group's committed offset is {committed.offset}, the state is at {header.offset}: offsets were reset, "
            "or something else commits for this group",
        ),
        (
            header.snapshots > found.keys,
            f"the state topic has {found.keys} snapshots where the header counts {header.snapshots}: it was cut, or "
            "deleted and created again, while workers went on",
        ),
        (
            header.offset > found.end,
            f"the state is at offset {header.offset}, beyond the end of the input ({found.end}), which has lost its "
            "newest records",
        ),
    )
    return next((what for wrong, what in checks if wrong), None)


def _same(stored: str, found: str) -> bool:
    """Whether two names are equal, as far as both are known."""
    return not stored or not found or stored == found


def _lost(found: Found, header: Header, lost: int) -> str:
    unread = max(found.earliest - header.offset, 0)
    what = f"{unread} offsets were deleted before they were read" if unread else "none of them is unread"
    return (
        f"the input begins at offset {found.earliest}, but records from {header.replay_from} on are needed to bring "
        f"models up to date: retention deleted {lost} offsets ({what}). Raise the topic's retention"
    )


def _settle(found: Found, ours: StateIdentity, policy: Policy, what: str) -> Opening:
    if policy == "fail":
        raise Fatal(f"{found.partition}: {what}. {_POLICIES}.")
    if policy == "discard_state":
        return _afresh(found, ours, what)
    if found.header is None:
        raise Fatal(
            f"{found.partition}: {what}. There is no state to trust: set state.on_offset_mismatch to discard_state."
        )
    return _trust(found, found.header, ours, what)


def _trust(found: Found, header: Header, ours: StateIdentity, what: str) -> Opening:
    """Keep the models, and go on from the state's own position as far as the input has it."""
    same_log = _same(header.topic_id, found.topic_id) and _same(header.cluster_id, found.cluster_id)
    if not same_log or header.offset > found.end:
        raise Fatal(
            f"{found.partition}: {what}. Positions in the state mean nothing in this input, so trust_state cannot go "
            "on from them: take the models over with `kstream-worker state export` and `state import --new-offsets "
            "--force`, or set state.on_offset_mismatch to discard_state to start them afresh."
        )
    offset = max(header.offset, found.earliest)
    kept = replace(header, offset=offset, replay_from=max(header.replay_from, found.earliest))
    _check_configuration(found.partition, kept, ours, replays=kept.replay_from < kept.offset)
    note = f"{what}; going on from the state, at offset {offset}"
    return Opening(_go_on(kept, found, ours), attempts=kept.attempts, note=note)


def _afresh(found: Found, ours: StateIdentity, what: str) -> Opening:
    offset = found.first if found.committed is None or _is_of_former_topic(found) else found.committed.offset
    if not found.earliest <= offset <= found.end:
        lost_newest = offset > found.end and _is_of_present_topic(found)
        offset = found.end if lost_newest else found.earliest
    note = f"{what}; the models start afresh at offset {offset}"
    return Opening(_begin(found, ours, offset), keep=False, note=note)


def _is_of_present_topic(found: Found) -> bool:
    """Whether the input is known to be the topic that the state was written for."""
    header = found.header
    return header is not None and bool(header.topic_id) and header.topic_id == found.topic_id


def _is_of_former_topic(found: Found) -> bool:
    """Whether the group's offset was committed by a worker that had not noticed that the topic was made again."""
    header, committed = found.header, found.committed
    return (
        header is not None
        and committed is not None
        and committed.metadata == header.token
        and _same(header.cluster_id, found.cluster_id)
        and not _same(header.topic_id, found.topic_id)
    )


def _begin(found: Found, ours: StateIdentity, offset: int) -> Header:
    return Header(
        token="",
        cluster_id=found.cluster_id,
        topic_id=found.topic_id,
        offset=offset,
        replay_from=offset,
        arls=((offset, ours.arl),),
        model_epoch=ours.model_epoch,
        generation=found.generation + 1,
        pipeline=ours.pipeline,
        bank=ours.bank,
        numerics=ours.numerics,
        release=ours.release,
    )


def _go_on(header: Header, found: Found, ours: StateIdentity) -> Header:
    arls = header.arls or ((header.replay_from, ours.arl),)
    if arls[-1][1] != ours.arl:
        arls = (*(pair for pair in arls if pair[0] < header.offset), (header.offset, ours.arl))
    waiting = found.end > header.offset
    tried_again = header.trial >= header.offset  # the next record, behind any gap
    return replace(
        header,
        cluster_id=found.cluster_id,
        topic_id=found.topic_id,
        arls=arls,
        attempts=header.attempts + 1 if waiting else header.attempts,
        deaths=header.deaths if tried_again else 0,
        trial=header.trial if tried_again else -1,
        triers=header.triers if tried_again else (),
        pipeline=ours.pipeline,
        numerics=ours.numerics,
        release=ours.release,
    )


def _check_configuration(partition: TopicPartition, header: Header, ours: StateIdentity, *, replays: bool) -> None:
    if header.model_epoch > ours.model_epoch:
        raise ConfigError(
            f"{partition}: the state is of model epoch {header.model_epoch}, app.model_epoch is {ours.model_epoch}: "
            f"set it to {header.model_epoch}"
        )
    if header.model_epoch < ours.model_epoch:
        raise ConfigError(
            f"{partition}: the state is of model epoch {header.model_epoch}, app.model_epoch is {ours.model_epoch}. "
            f"Start with --discard-state to begin epoch {ours.model_epoch} without those models, or set it back"
        )
    if header.bank != ours.bank:
        raise ConfigError(
            f"{partition}: the models in the state are of another configuration (model, detector, reference or number "
            "of features). Set it back, or raise app.model_epoch and start with --discard-state to start models afresh"
        )
    changed = [
        name
        for name, differs in (
            ("the configuration of input, gate, pairing or life of keys", header.pipeline != ours.pipeline),
            (f"the arithmetic (release {header.release}, now {ours.release})", header.numerics != ours.numerics),
        )
        if differs
    ]
    if changed and replays:
        raise ConfigError(
            f"{partition}: {' and '.join(changed)} changed, but {header.offset - header.replay_from} offsets are to be "
            "read again as they were read then. Run once with --drain in the former configuration and release, which "
            "snapshots everything; or raise app.model_epoch and start with --discard-state"
        )
