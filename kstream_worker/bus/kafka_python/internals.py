"""Everything of kafka-python that the adapter uses and that is not public, in one place.

Each function says why no public call serves. The tests in `tests/kafka` hold all of them to the installed release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.admin import TransactionDescription
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.records import Headers, Messages

GoOn = Callable[[], None]
GIVE_UP_EVERY_MS = 200


def group_state(consumer: Any) -> ConsumerGroupMetadata:
    """The present membership. Public, but without types."""
    metadata: ConsumerGroupMetadata = consumer.group_metadata()
    return metadata


def is_stable(metadata: ConsumerGroupMetadata) -> bool:
    """Whether this state of a member proves anything: an evicted member shows (-1, ''), which no broker fences."""
    return bool(metadata.state == MemberState.STABLE and metadata.generation_id >= 0 and metadata.member_id)


def rejoin_wanted(consumer: Any) -> bool:
    """Whether the next poll joins the group again; while it does, polls must follow one another at once."""
    return bool(consumer._coordinator.rejoin_needed)


def free_line(consumer: Any) -> None:
    """Free the place of the records in line once they are used up.

    What the client holds of a partition that is paused it parks, and takes it back where that place is free, which
    used-up records leave it never: resumed while others are read, the partition would stand still for good.
    """
    fetcher = consumer._fetcher
    if not fetcher._next_partition_records:
        fetcher._next_partition_records = None


def held_error(consumer: Any) -> Exception | None:
    """Take what the next poll is to raise: one that follows a pause of the partition would not, and read no more.

    None where the partition is gone or is read from elsewhere by now.
    """
    fetcher = consumer._fetcher
    held, fetcher._next_in_line_exception_metadata = fetcher._next_in_line_exception_metadata, None
    if held is None or position_offset(consumer, held.partition) != held.fetched_offset:
        return None
    error: Exception = held.exception
    return error


def drop_line(consumer: Any) -> None:
    """Throw away the records in line, which a poll that raised may have left without an end.

    The client goes on asking them within one poll, for ever, where the partition is read from the same offset again.
    """
    line = consumer._fetcher._next_partition_records
    if line is not None:
        line.drain()
    consumer._fetcher._next_partition_records = None


def cluster_id(admin: Any) -> str:
    """Identity of the cluster, as each broker's metadata have it.

    The public call asks in a newer way, and fails with a KeyError where brokers before 3.7 answer.
    """
    metadata: Mapping[str, Any] = admin._manager.run(admin._get_cluster_metadata, [])
    return str(metadata["cluster_id"])


class KeptJoin:
    """A join in flight that is not thrown away when it ends between two polls.

    The client starts another join when it finds the former one done, which puts the whole group into yet another
    rebalance.
    """

    is_done = False

    def __init__(self, join: Any) -> None:
        self.add_callback = join.add_callback
        self.add_errback = join.add_errback


def join_group(consumer: Any, timeout_s: float) -> bool:
    """Take part in the group until joined; a public poll would go on waiting for records afterwards.

    A join that outlives its poll is kept, and asked for again: where new metadata alone caused it, the client would
    otherwise forget that it is under way, and stay out of the group for good.
    """
    coordinator = consumer._coordinator
    if coordinator._join_task is not None:
        coordinator.request_rejoin()
        if not isinstance(coordinator._join_task, KeptJoin):
            coordinator._join_task = KeptJoin(coordinator._join_task)
    return bool(coordinator.poll(timeout_ms=timeout_s * 1000))


def fenced_without_word(consumer: Any) -> bool:
    """Whether another process took over this instance id.

    The heartbeat task learns it, logs it, switches heartbeats off and leaves the state `STABLE`: polls go on without an
    error.
    """
    coordinator = consumer._coordinator
    with coordinator._lock:
        joining = coordinator.rejoin_needed or coordinator.rejoining
        return bool(coordinator.state == MemberState.STABLE and not coordinator._heartbeat_enabled and not joining)


def position(consumer: Any, partition: ClientPartition) -> OffsetAndMetadata | None:
    """The position, with the leader epoch of what lies before it; the public call may wait for the network."""
    state = consumer._subscription.assignment.get(partition)
    return None if state is None else state.position


def position_offset(consumer: Any, partition: ClientPartition) -> int | None:
    """The offset of the position."""
    reached: Any = position(consumer, partition)
    return None if reached is None else int(reached.offset)


def seek(consumer: Any, partition: ClientPartition, to: OffsetAndMetadata) -> None:
    """Read on from there, unless the log has lost what lay before it; the public call knows no leader epochs."""
    consumer._subscription.seek(partition, to)


def committed_offsets(
    consumer: Any, partitions: Sequence[ClientPartition], timeout_ms: int
) -> Mapping[ClientPartition, Any]:
    """Committed positions of many partitions in one request; those without one are left out.

    The public call asks for one partition at a time: hundreds of them, a few milliseconds each, never fit a deadline.
    """
    found: Mapping[ClientPartition, Any] = consumer._coordinator.fetch_committed_offsets(
        list(partitions), timeout_ms=timeout_ms
    )
    return found


def forget_unanswered_offset_reads(consumer: Any) -> None:
    """Drop reads of committed offsets that outlived their timeout.

    The client keeps such a request and hands its answer, old by then, to the next call for the same partitions.
    """
    consumer._coordinator._offset_fetch_futures.clear()


def leave_although_static(consumer: Any) -> None:
    """Make `close` tell the group: for static members the client never sends LeaveGroup."""
    consumer._coordinator.is_dynamic_member = lambda: True


def describe_transaction(admin: Any, transactional_id: str) -> TransactionDescription:
    """The coordinator's view of a transactional id. Public, but without types."""
    found: TransactionDescription = admin.describe_transactions([transactional_id])[transactional_id]
    return found


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes of a batch with this one record, as the producer estimates them before it refuses one."""
    builder: Any = DefaultRecordBatchBuilder
    return int(builder.estimate_size_in_bytes(key, value, list(headers)))


def append_records(producer: Any, partition: ClientPartition, messages: Messages) -> list[Any]:
    """Hand records of one partition to the producer; one future each.

    `KafkaProducer.send` checks and looks up the same for every record, a third of its time, and refuses records with
    neither key nor value, which Kafka takes. Here that is done once; the partition must be known to exist.
    """
    producer._transaction_manager.maybe_add_partition_to_transaction(partition)
    append, wake_up = producer._accumulator.append, producer._sender.wakeup
    futures = []
    rows = zip(messages.timestamps, messages.keys, messages.values, messages.headers, strict=True)
    for timestamp, key, value, headers in rows:
        future, is_full, is_new, _ = append(partition, timestamp if timestamp >= 0 else None, key, value, headers)
        futures.append(future)
        if is_full or is_new:
            wake_up()
    return futures


def producer_identity(producer: Any) -> tuple[int, int]:
    """Producer id and epoch: an epoch that the client raised by itself means that the transaction was lost."""
    identity = producer._transaction_manager.producer_id_and_epoch
    return int(identity.producer_id), int(identity.epoch)


def last_error(producer: Any) -> Exception | None:
    """What put a producer into its error state; its calls raise a text without the class."""
    error: Exception | None = producer._transaction_manager.last_error
    return error


def stop_sender(producer: Any, timeout_s: float) -> None:
    """End a producer's thread without sending what it holds.

    `close(timeout)` with unsent records raises and leaves the thread running.
    """
    producer._sender.force_close()
    producer._sender.join(timeout_s)


def send_offsets(
    producer: Any, offsets: Mapping[ClientPartition, OffsetAndMetadata], group: ConsumerGroupMetadata, go_on: GoOn
) -> None:
    """`send_offsets_to_transaction`, given up when `go_on` raises; the public call waits for ever."""
    _wait(producer, producer._transaction_manager.send_offsets_to_transaction(offsets, group), go_on)


def end_transaction(producer: Any, go_on: GoOn) -> None:
    """`commit_transaction`, given up when `go_on` raises; the public call waits for ever, even on a closed producer."""
    _wait(producer, producer._transaction_manager.begin_commit(), go_on)


def _wait(producer: Any, result: Any, go_on: GoOn) -> None:
    producer._sender.wakeup()
    while not result.wait(timeout_ms=GIVE_UP_EVERY_MS):
        go_on()
