"""What the demonstration prints: a table of alarms, the same for files and for Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kstream_worker.demo.data import FEATURES, Track

HEADINGS = ("key", "raised at", "likely change", "evidence", "score", "direction", "driving features", "guarantee")


def alarm_rows(alarms: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One row per raised alarm, by key and time."""
    raised = [alarm for alarm in alarms if alarm["transition"] == "raised"]
    return [alarm_row(alarm) for alarm in sorted(raised, key=lambda a: (a["key"], a["event_time"]))]


def alarm_row(alarm: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one alarm."""
    driving = ", ".join(f"{f['name']} {100 * f['weight']:.0f} %" for f in alarm["features"][: len(FEATURES)])
    return (
        str(alarm["key"]),
        clock(alarm["event_time"]),
        clock(alarm["change_time"]),
        f"{alarm['evidence'] / alarm['threshold']:.2f} x threshold",
        str(alarm["reason"]),
        str(alarm["direction"]),
        driving,
        str(alarm["guarantee"]),
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def story(tracks: Sequence[Track]) -> str:
    """What is replayed, in words."""
    lines = []
    for track in tracks:
        at = track.injected_at
        what = "its own changes" if at is None else f"a change of {track.entity.change} put in at {clock(at)}"
        lines.append(f"  {track.entity.name:9} {len(track.times)} samples of {' and '.join(FEATURES)}, with {what}")
    return "\n".join(lines)


def clock(time_ms: int) -> str:
    """Event time for people, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
