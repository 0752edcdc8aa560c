"""From the bus to histories: all partitions of the input, read outside any group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from kstream_worker.calibration.history import Collector
from kstream_worker.errors import ConfigError
from kstream_worker.ports import Decoder
from kstream_worker.records import Batch, End, Samples, TopicPartition
from kstream_worker.state_tools.place import Place
from kstream_worker.state_tools.reading import PartitionReader, Report


@dataclass(slots=True)
class Read:
    """What was read.

    Attributes:
        partitions: of the input.
        records: read.
        rejected: of these, refused by codec or gate, by reason.
    """

    partitions: int = 0
    records: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


def read_history(
    place: Place,
    collector: Collector,
    make_decoder: Callable[[], Decoder],
    report: Report,
    *,
    from_record_ms: int | None = None,
) -> Read:
    """Read the input from its beginning, or from a record time, to its present end.

    Args:
        place: bus and topic.
        collector: takes the samples.
        make_decoder: codec, gate and pairing of one partition.
        report: told how far it is.
        from_record_ms: records before this time of their own are not read; None for all.

    Raises:
        ConfigError: there is no such topic.
        Fatal: the bus does not answer.
    """
    found = Read(partitions=place.persist(lambda: place.cluster.partition_count(place.topic)) or 0)
    if not found.partitions:
        raise ConfigError(f"the input topic {place.topic} does not exist. Correct input.topic")
    partitions = [place.input_of(number) for number in range(found.partitions)]
    starts, ends = _bounds(place, partitions, from_record_ms)
    with closing(PartitionReader(place, report)) as reader:
        for partition in partitions:
            decoder = make_decoder()
            for batch in reader.batches(partition, starts[partition], ends[partition]):
                collector.take(partition.partition, _decode(decoder, batch, found))
    return found


def _bounds(
    place: Place, partitions: list[TopicPartition], from_record_ms: int | None
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    cluster = place.cluster
    starts = place.persist(lambda: cluster.earliest(partitions))
    if from_record_ms is not None:
        starts = place.persist(lambda: cluster.at_time(partitions, from_record_ms))
    return starts, place.persist(lambda: cluster.end(partitions, End.STABLE))


def _decode(decoder: Decoder, batch: Batch, found: Read) -> Samples:
    samples, rejects = decoder.decode(batch)
    found.records += len(batch)
    found.rejected.update(rejects.reasons)
    return samples
