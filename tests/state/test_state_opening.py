"""From where a partition goes on: each thing that can be found, and what is said and done about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.records import Committed, TopicPartition
from kstream_worker.state.format import Header
from kstream_worker.state.opening import Found, Opening, Policy, StateIdentity, decide

OURS = StateIdentity(model_epoch=2, pipeline="pipe", bank="bank", numerics="arithmetic", arl=100.0, release="1.0")
HEADER = Header(
    token="token",
    cluster_id="cluster",
    topic_id="topic",
    offset=50,
    replay_from=40,
    clock_ms=7,
    closed=((45, -1),),
    arls=((30, 100.0),),
    rejected=(42,),
    attempts=1,
    model_epoch=2,
    generation=3,
    pipeline="pipe",
    bank="bank",
    numerics="arithmetic",
    release="1.0",
)
FOUND = Found(
    partition=TopicPartition("readings", 1),
    committed=Committed(50, "token"),
    header=HEADER,
    keys=4,
    generation=3,
    first=20,
    earliest=20,
    end=90,
    cluster_id="cluster",
    topic_id="topic",
)
MISMATCHES: dict[str, tuple[Found, str]] = {
    "the state was deleted": (replace(FOUND, header=None), "no header in the state topic"),
    "the group's offset expired": (replace(FOUND, committed=None), "expired or was deleted"),
    "snapshots are there and nothing else": (
        replace(FOUND, committed=None, header=None),
        "no header in the state topic",
    ),
    "offsets were reset": (replace(FOUND, committed=Committed(10, "token")), "offsets were reset"),
    "something else has committed": (replace(FOUND, committed=Committed(50, "other")), "something else commits"),
    "another cluster": (replace(FOUND, cluster_id="other"), "belongs to the cluster cluster, this one is other"),
    "the topic was made again": (replace(FOUND, topic_id="other"), "deleted and created again"),
    "the state topic was cut": (
        replace(FOUND, header=replace(HEADER, snapshots=5)),
        "4 snapshots where the header counts 5",
    ),
    "the input was cut at its end": (replace(FOUND, end=49), "beyond the end of the input"),
    "retention, nothing unread": (replace(FOUND, earliest=45), "retention deleted 5 offsets (none of them is unread)"),
    "retention, unread": (replace(FOUND, earliest=60), "10 offsets were deleted before they were read"),
}


def opening(
    found: Found = FOUND, ours: StateIdentity = OURS, policy: Policy = "fail", discard: bool = False
) -> Opening:
    return decide(found, ours, policy, discard=discard)


def test_a_partition_that_nobody_knows_begins_where_it_is_told() -> None:
    new = opening(replace(FOUND, committed=None, header=None, keys=0, generation=-1))
    assert new.keep
    assert not new.note
    header = new.header
    assert (header.offset, header.replay_from, header.generation, header.model_epoch) == (20, 20, 0, 2)
    assert header.arls == ((20, 100.0),)
    assert (header.cluster_id, header.topic_id, header.bank, header.pipeline) == ("cluster", "topic", "bank", "pipe")


def test_what_fits_goes_on_and_counts_the_attempt() -> None:
    on = opening()
    assert (on.keep, on.note) == (True, "")
    assert on.header == replace(HEADER, attempts=2)


def test_an_idle_partition_is_no_attempt() -> None:
    assert opening(replace(FOUND, end=50)).header.attempts == HEADER.attempts


def test_names_that_are_unknown_are_no_mismatch() -> None:
    assert opening(replace(FOUND, topic_id="")).header.topic_id == ""
    assert opening(replace(FOUND, header=replace(HEADER, topic_id=""))).header.topic_id == "topic"


@pytest.mark.parametrize("case", MISMATCHES)
def test_a_mismatch_is_said_with_its_remedies(case: str) -> None:
    found, what = MISMATCHES[case]
    with pytest.raises(Fatal) as caught:
        opening(found)
    message = str(caught.value)
    assert message.startswith("readings[1]: ")
    assert what in message
    assert "state.on_offset_mismatch to trust_state" in message
    assert "discard_state" in message


@pytest.mark.parametrize("case", MISMATCHES)
def test_models_start_afresh_where_that_is_wanted(case: str) -> None:
    found, what = MISMATCHES[case]
    fresh = opening(found, policy="discard_state")
    assert not fresh.keep
    assert what in fresh.note
    header = fresh.header
    assert header.replay_from == header.offset
    assert found.earliest <= header.offset <= found.end
    remade = "deleted and created again" in what  # where the committed offset is one of the former topic
    wanted = found.first if found.committed is None or remade else found.committed.offset
    assert header.offset == min(max(wanted, found.earliest), found.end)
    assert header.generation == 4  # snapshots of before do not belong to it
    assert (header.clock_ms, header.closed, header.rejected, header.attempts) == (-1, (), (), 0)


def of_this_log(found: Found) -> bool:
    return found.cluster_id == "cluster" and found.topic_id == "topic" and found.end >= HEADER.offset


WITH_HEADER = [case for case in MISMATCHES if MISMATCHES[case][0].header is not None]


@pytest.mark.parametrize("case", [case for case in WITH_HEADER if of_this_log(MISMATCHES[case][0])])
def test_models_go_on_where_the_state_is_trusted(case: str) -> None:
    found, what = MISMATCHES[case]
    trusted = opening(found, policy="trust_state")
    assert trusted.keep
    assert what in trusted.note
    header = trusted.header
    assert found.earliest <= header.replay_from <= header.offset <= found.end
    assert header.generation == HEADER.generation
    assert header.offset == max(HEADER.offset, found.earliest)
    assert header.replay_from == max(HEADER.replay_from, found.earliest)


@pytest.mark.parametrize("case", [case for case in WITH_HEADER if not of_this_log(MISMATCHES[case][0])])
def test_positions_of_another_log_are_not_trusted(case: str) -> None:
    found, what = MISMATCHES[case]
    with pytest.raises(Fatal, match=r"mean nothing in this input.*state import --new-offsets --force") as caught:
        opening(found, policy="trust_state")
    assert what in str(caught.value)


def test_what_is_replayed_in_trust_is_replayed_as_it_was_read() -> None:
    moved = replace(FOUND, committed=Committed(40, "other"))
    with pytest.raises(ConfigError, match=r"gate, pairing.*10 offsets.*--drain"):
        opening(moved, ours=replace(OURS, pipeline="other"), policy="trust_state")


@pytest.mark.parametrize("case", [case for case in MISMATCHES if MISMATCHES[case][0].header is None])
def test_without_a_header_there_is_nothing_to_trust(case: str) -> None:
    with pytest.raises(Fatal, match=r"no state to trust: set state\.on_offset_mismatch to discard_state"):
        opening(MISMATCHES[case][0], policy="trust_state")


def test_a_newer_epoch_needs_to_be_told_to_discard() -> None:
    newer = replace(OURS, model_epoch=3)
    with pytest.raises(ConfigError, match=r"epoch 2, app\.model_epoch is 3.*--discard-state"):
        opening(ours=newer)
    fresh = opening(ours=newer, discard=True)
    assert not fresh.keep
    assert (fresh.header.model_epoch, fresh.header.generation, fresh.header.offset) == (3, 4, 50)
    assert "models of epoch 2 are discarded" in fresh.note


def test_an_older_epoch_is_refused_whatever_is_said() -> None:
    with pytest.raises(ConfigError, match=r"epoch 2, app\.model_epoch is 1: set it to 2"):
        opening(ours=replace(OURS, model_epoch=1), discard=True)


def test_discarding_does_nothing_without_a_newer_epoch() -> None:
    assert opening(discard=True) == opening()


@pytest.mark.parametrize("policy", ["fail", "trust_state", "discard_state"])
def test_models_of_another_configuration_are_refused(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"another configuration.*raise app\.model_epoch.*--discard-state"):
        opening(ours=replace(OURS, bank="other"), policy=policy)


@pytest.mark.parametrize(
    ("ours", "what"),
    [(replace(OURS, pipeline="other"), "gate, pairing"), (replace(OURS, numerics="other"), "the arithmetic")],
)
def test_what_shapes_samples_may_change_when_nothing_is_replayed(ours: StateIdentity, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"{what}.*10 offsets.*--drain.*--discard-state"):
        opening(ours=ours)
    drained = replace(FOUND, header=replace(HEADER, replay_from=50))
    header = opening(drained, ours=ours).header
    assert (header.pipeline, header.numerics) == (ours.pipeline, ours.numerics)


def test_another_run_length_holds_from_the_committed_offset_on() -> None:
    assert opening(ours=replace(OURS, arl=200.0)).header.arls == ((30, 100.0), (50, 200.0))
    changed = replace(FOUND, header=replace(HEADER, arls=((30, 100.0), (50, 200.0))))
    assert opening(changed, ours=replace(OURS, arl=300.0)).header.arls == ((30, 100.0), (50, 300.0))
    assert opening(changed, ours=replace(OURS, arl=200.0)).header.arls == ((30, 100.0), (50, 200.0))


def test_a_trial_at_the_next_record_is_remembered_and_a_former_one_is_not() -> None:
    tried = opening(replace(FOUND, header=replace(HEADER, trial=50, deaths=2))).header
    assert (tried.trial, tried.deaths) == (50, 2)
    passed = opening(replace(FOUND, header=replace(HEADER, trial=49, deaths=2))).header
    assert (passed.trial, passed.deaths) == (-1, 0)


def test_offsets_of_a_former_topic_say_nothing_about_the_new_one() -> None:
    remade = replace(FOUND, topic_id="other")
    assert opening(remade, policy="discard_state").header.offset == 20
    moved_by_hand = replace(remade, committed=Committed(50, ""))
    assert opening(moved_by_hand, policy="discard_state").header.offset == 50
    mirrored = replace(remade, cluster_id="other")
    assert opening(mirrored, policy="discard_state").header.offset == 50
