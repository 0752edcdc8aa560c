"""Partitions and keys as rows: what `list` prints, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kstream_worker.state_tools.names import key_name, time_name
from kstream_worker.state_tools.survey import Entry, Survey

HEADINGS = ("partition", "offset", "to replay", "keys", "bytes", "clock", "epoch", "gen", "attempts", "release")
KEY_HEADINGS = ("partition", "key", "position", "last seen", "bytes", "alarm")
_LEFT = frozenset({"key", "clock", "last seen", "release", "alarm"})


def partition_row(found: Survey) -> dict[str, object]:
    """A partition, by name; all that its header says, and what is there of keys."""
    live, header = found.live(), found.header
    row: dict[str, object] = {
        "partition": found.number,
        "keys": len(live) if header is not None else 0,
        "bytes": sum(entry.size_bytes for entry in live.values()) if header is not None else 0,
    }
    if header is None:
        return {**row, "problem": problem_of(found)}
    return row | {
        "offset": header.offset,
        "replay_from": header.replay_from,
        "clock_ms": header.clock_ms,
        "model_epoch": header.model_epoch,
        "generation": header.generation,
        "attempts": header.attempts,
        "arl": header.arls[-1][1] if header.arls else None,
        "release": header.release,
        "cluster_id": header.cluster_id,
        "topic_id": header.topic_id,
        "refusing_new_keys": bool(header.closed) and header.closed[-1][1] < 0,
        "damaged": sum(bool(entry.problem) for entry in live.values()),
        "left_over": len(found.keys) - len(live),
    }


def problem_of(found: Survey) -> str:
    """Why a partition has no header."""
    if found.header_problem:
        return f"the header is damaged: {found.header_problem}"
    count = len(found.keys) + sum(entry is not None for entry in found.unfinished.values())
    return f"no header, but {count} snapshots" if count else "nothing committed yet"


def partition_cells(found: Survey) -> tuple[str, ...]:
    """A line of the table of partitions."""
    row, header = partition_row(found), found.header
    if header is None:
        return (str(found.number), *["-"] * (len(HEADINGS) - 2), problem_of(found))
    return (
        str(found.number),
        str(header.offset),
        str(header.offset - header.replay_from),
        str(row["keys"]),
        str(row["bytes"]),
        time_name(header.clock_ms),
        str(header.model_epoch),
        str(header.generation),
        str(header.attempts),
        header.release,
    )


def key_rows(found: Survey) -> Iterator[dict[str, object]]:
    """The keys of a partition that are in use, by name, in byte order."""
    for key, entry in sorted(found.live().items()):
        row: dict[str, object] = {
            "partition": found.number,
            "key": key_name(key),
            "position": entry.position,
            "seen_ms": entry.seen_ms,
            "bytes": entry.size_bytes,
            "raised": entry.raised,
        }
        yield {**row, "problem": entry.problem} if entry.problem else row


def key_cells(found: Survey) -> Iterator[tuple[str, ...]]:
    """Lines of the table of keys."""
    for key, entry in sorted(found.live().items()):
        numbers = (str(entry.position), time_name(entry.seen_ms), str(entry.size_bytes))
        yield (str(found.number), key_name(key), *numbers, _alarm(entry))


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], left: frozenset[str] = _LEFT) -> Iterator[str]:
    """Lines with columns of equal width; those of the headings in `left` are flush left, the others right."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(headings, line, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _alarm(entry: Entry) -> str:
    if entry.problem:
        return f"cannot be read: {entry.problem}"
    return "" if entry.raised is None else "raised" if entry.raised else "-"
