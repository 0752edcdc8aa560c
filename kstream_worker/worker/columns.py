"""Parts of columns: rows of a batch, of its samples, of its rejects."""

from __future__ import annotations

from bisect import bisect_left

from kstream_worker.records import Batch, IntColumn, Rejects, Samples


def part_of(batch: Batch, first: int, last: int) -> Batch:
    """Rows `first` to `last` of a batch, read on from behind them."""
    rows = slice(first, last)
    whole = last == len(batch)
    return Batch(
        batch.partition,
        batch.offsets[rows],
        batch.timestamps[rows],
        batch.keys[rows],
        batch.values[rows],
        batch.headers[rows],
        batch.next_offset if whole else batch.offsets[last],
        batch.leader_epoch,
    )


def without(batch: Batch, rows: set[int]) -> Batch:
    """A batch but for these rows."""
    kept = [row for row in range(len(batch)) if row not in rows]
    return Batch(
        batch.partition,
        [batch.offsets[row] for row in kept],
        [batch.timestamps[row] for row in kept],
        [batch.keys[row] for row in kept],
        [batch.values[row] for row in kept],
        [batch.headers[row] for row in kept],
        batch.next_offset,
        batch.leader_epoch,
    )


def moved(rejects: Rejects, part: Batch, whole: Batch) -> Rejects:
    """Rejects of some rows of a batch, as rejects of all of it."""
    rows = [bisect_left(whole.offsets, part.offsets[row]) for row in rejects.positions]
    return Rejects(rows, rejects.reasons, rejects.messages)


def merged(rejects: Rejects, more: Rejects) -> Rejects:
    """Both, in the order of their rows."""
    if not more.positions:
        return rejects
    rows = sorted(
        [
            *zip(rejects.positions, rejects.reasons, rejects.messages, strict=True),
            *zip(more.positions, more.reasons, more.messages, strict=True),
        ]
    )
    return Rejects([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def rows_of(samples: Samples, rows: slice | IntColumn) -> Samples:
    """Some rows of samples, without what is to be forgotten between them."""
    keys = samples.keys[rows] if isinstance(rows, slice) else [samples.keys[row] for row in rows.tolist()]
    return Samples(
        samples.offsets[rows],
        samples.times[rows],
        keys,
        None if samples.x is None else samples.x[rows],
        samples.y[rows],
        stamps=None if samples.stamps is None else samples.stamps[rows],
    )
