"""Whether the state topic can hold state: asked before anything is read, so that a fault is named and not met later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kstream_worker.ports import Cluster

ENVELOPE_BYTES = 65_536  # of a snapshot beside its model: the key, what its alarm said, headers and the record's frame
MIN_TOMBSTONE_MS = 600_000  # a restore that took longer would miss keys that went meanwhile; it takes minutes at most
MAX_SEGMENT_BYTES = 256 * 2**20


class StateTopicFindings(NamedTuple):
    """What was found, in words with the remedy.

    Attributes:
        problems: state would be lost or could not be written; no worker should start.
        warnings: what could not be checked, or costs time.
    """

    problems: list[str]
    warnings: list[str]


def largest_snapshot_bytes(model_bytes: int) -> int:
    """Most bytes of a record of the state topic.

    Args:
        model_bytes: of one key in its bank, `Bank.bytes_per_key`.
    """
    return model_bytes + model_bytes // 255 + ENVELOPE_BYTES  # LZ4 makes no block longer than by a 255th


def check_state_topic(
    cluster: Cluster, *, input_topic: str, state_topic: str, largest_snapshot_bytes: int
) -> StateTopicFindings:
    """Look at the state topic.

    Args:
        cluster: that has it.
        input_topic: whose partitions it must match; one that does not exist is not reported here.
        state_topic: to be checked.
        largest_snapshot_bytes: see the function of that name.

    Raises:
        Retry: the bus does not answer.
        ConfigError: a topic may not be seen.
    """
    inputs, count = cluster.partition_count(input_topic), cluster.partition_count(state_topic)
    if count is None:
        return StateTopicFindings([_missing(state_topic, inputs)], [])
    problems = [] if inputs in (None, count) else [_partitions_differ(input_topic, inputs or 0, state_topic, count)]
    settings = cluster.topic_config(state_topic)
    if not settings:
        return StateTopicFindings(problems, [_unreadable(state_topic, largest_snapshot_bytes)])
    problems += (f"state topic '{state_topic}': {one}" for one in _faults(settings, largest_snapshot_bytes))
    return StateTopicFindings(problems, [f"state topic '{state_topic}': {one}" for one in _costs(settings)])


def _missing(state_topic: str, inputs: int | None) -> str:
    wanted = "" if inputs is None else f"{_partitions(inputs)} and "
    return (
        f"state topic '{state_topic}' does not exist: create it with {wanted}cleanup.policy=compact "
        "(`kstream-worker topics --create` does)"
    )


def _partitions_differ(input_topic: str, inputs: int, state_topic: str, count: int) -> str:
    if count < inputs:
        remedy = f"add partitions to '{state_topic}' until it has {inputs}"
    else:
        remedy = (
            f"if '{input_topic}' is the right topic, name another `state.topic` and create it with "
            f"{_partitions(inputs)}; the models start afresh then"
        )
    return (
        f"state topic '{state_topic}' has {_partitions(count)}, but '{input_topic}' has {inputs}: each partition keeps "
        f"its state in the one of the same number. Stop the workers and {remedy}"
    )


def _unreadable(state_topic: str, largest_snapshot_bytes: int) -> str:
    return (
        f"settings of the state topic '{state_topic}' cannot be read (needs the right DESCRIBE_CONFIGS): make sure "
        f"that it has cleanup.policy=compact and max.message.bytes of at least {largest_snapshot_bytes}"
    )


def _faults(settings: Mapping[str, str], largest_snapshot_bytes: int) -> Iterator[str]:
    policy = settings.get("cleanup.policy", "compact")
    if policy != "compact":
        yield f"cleanup.policy is {policy}: retention would delete the models of quiet keys. Set cleanup.policy=compact"
    limit = int(settings.get("max.message.bytes", largest_snapshot_bytes))
    if limit < largest_snapshot_bytes:
        yield (
            f"max.message.bytes is {limit}, but a snapshot may have {largest_snapshot_bytes} bytes: it could not be "
            f"written. Set max.message.bytes={largest_snapshot_bytes} or more, or make the models smaller "
            "(`detector.warmup`, `model.atoms`, fewer features)"
        )
    kept_ms = int(settings.get("delete.retention.ms", MIN_TOMBSTONE_MS))
    if kept_ms < MIN_TOMBSTONE_MS:
        yield (
            f"delete.retention.ms is {kept_ms}: a key that goes during a restore could come back. "
            f"Set delete.retention.ms={MIN_TOMBSTONE_MS} or more"
        )


def _costs(settings: Mapping[str, str]) -> Iterator[str]:
    segment_bytes = int(settings.get("segment.bytes", 0))
    if segment_bytes > MAX_SEGMENT_BYTES:
        yield (
            f"segment.bytes is {segment_bytes}: the newest segment of a partition is never compacted, and each start "
            "reads it whole. Set segment.bytes=67108864"
        )


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
