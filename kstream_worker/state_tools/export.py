"""State into a file: of each partition its last header and the latest snapshots below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kstream_worker.errors import Fatal
from kstream_worker.records import Batch
from kstream_worker.state.format import state_key
from kstream_worker.state_tools.archive import About, ArchiveWriter, PartitionLine, SnapshotLine, writing
from kstream_worker.state_tools.reading import StateReader
from kstream_worker.state_tools.survey import Entry, Survey, survey

Say = Callable[[str], None]


def export_state(reader: StateReader, about: About, path: Path, say: Say) -> int:
    """Write all partitions into a file; the number of keys.

    A partition is read twice: first to know which of its records are the latest, then to copy those. So no more than
    its keys are held in memory.

    Args:
        reader: of the state topic.
        about: the first line.
        path: of the file, which must not be there.
        say: takes a line for people.

    Raises:
        Fatal: the file cannot be written, or the state went on so fast that it cannot be copied.
    """
    with writing(path) as archive:
        archive.write(about)
        for number in range(about.partitions):
            found = survey(reader, number)
            if found.header is None:
                say(_nothing(found, about))
                continue
            _copy(reader, found, archive)
            say(_done(found))
        return archive.snapshots


def _copy(reader: StateReader, found: Survey, archive: ArchiveWriter) -> None:
    header, wanted = found.header, found.live()
    if header is None:
        raise ValueError("a partition without a header has nothing to copy")
    archive.write(
        PartitionLine(
            partition=found.number,
            header=found.header_value,
            offset=header.offset,
            replay_from=header.replay_from,
            keys=len(wanted),
        )
    )
    before = archive.snapshots
    by_offset = {entry.offset: key for key, entry in wanted.items()}
    for batch in reader.records(found.number, found.end):
        for key, value in _chosen(batch, by_offset):
            archive.write(SnapshotLine(partition=found.number, key=key, value=value))
    if archive.snapshots - before != len(wanted):
        raise Fatal(
            f"partition {found.number} of the state was written to while it was copied, and records that were read "
            "first are gone. Stop the workers, or try again"
        )


def _chosen(batch: Batch, by_offset: dict[int, bytes]) -> list[tuple[bytes, bytes]]:
    chosen = []
    for offset, record_key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
        key = by_offset.get(offset)
        if key is not None and value is not None and record_key == state_key(key):
            chosen.append((key, value))
    return chosen


def _nothing(found: Survey, about: About) -> str:
    if found.empty:
        return f"partition {found.number}: nothing was ever committed for it"
    why = f"its header is damaged ({found.header_problem})" if found.header_problem else "it has no header"
    count = len(found.keys) + len(found.unfinished)
    return (
        f"partition {found.number}: {why}, so its {count} snapshots in {about.state_topic} belong to no offset, and "
        "are left out"
    )


def _done(found: Survey) -> str:
    header, live = found.header, found.live()
    if header is None:
        raise ValueError("a partition without a header was not copied")
    parts = [f"partition {found.number}: {len(live)} keys at offset {header.offset}"]
    if header.replay_from < header.offset:
        parts.append(
            f"complete only with the input from offset {header.replay_from} on: where that will not be there, run the "
            "worker once with --drain, and export then"
        )
    if damaged := _damaged(live):
        parts.append(f"{damaged} of them damaged, and copied as they are")
    if left := len(found.keys) - len(live):
        parts.append(f"{left} left-over snapshots of discarded models are left out")
    return "; ".join(parts)


def _damaged(live: dict[bytes, Entry]) -> int:
    return sum(bool(entry.problem) for entry in live.values())
