"""The results as text: Markdown tables, and the one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.detection import setting
from benchmarks.detection.run import Result, Row

_WHOLE = ("found", "outside", "alarms", "incidents", "samples")


def markdown(results: Sequence[Result]) -> str:
    """One table for each task."""
    return "\n\n".join("\n".join(_table(result)) for result in results)


def _table(result: Result) -> list[str]:
    task = result.task
    oracle = any(row.oracle is not None for row in result.rows)
    heads = ["", *task.measures, *([f"{task.measures[0]}, chosen on the answers"] if oracle else [])]
    lines = [
        f"**{task.name}** ({_series(result)}; ours with {_times(result)})",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for row in result.rows:
        cells = [_name(row), *(_number(task.name, name, row.measures.get(name)) for name in task.measures)]
        if oracle:
            best = "" if row.oracle is None else f"{_number(task.name, task.measures[0], row.oracle)} ({row.oracle_at})"
            cells.append(best)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _series(result: Result) -> str:
    count = len(result.task.series)
    samples = sum(map(len, result.task.series))
    return f"{count} series, {samples:,} samples" if count > 1 else f"{samples:,} samples"


def _times(result: Result) -> str:
    return ", ".join(f"`{name.removesuffix('_ms')}` {duration(value)}" for name, value in result.task.times.items())


def duration(milliseconds: Any) -> str:
    """In the largest unit that leaves a whole number."""
    if not isinstance(milliseconds, int):
        return str(milliseconds)
    for unit, size in (("d", setting.DAY_MS), ("h", setting.HOUR_MS), ("min", setting.MINUTE_MS), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms" if milliseconds else "0"


def _name(row: Row) -> str:
    if row.kind == "ours":
        return f"**{row.detector}**"
    return {"offline": f"{row.detector} (offline)", "published": f"{row.detector} (published)"}.get(
        row.kind, row.detector
    )


def _number(task: str, measure: str, value: float | None) -> str:
    if value is None:
        return ""
    if measure in _WHOLE:
        return f"{value:.0f}"
    return f"{value:.3f}" if measure in ("F1", "cover") else f"{value:.1f}"


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """What the last line says."""
    return {
        "setting": setting.EVERYWHERE,
        "tasks": {
            result.task.name: {
                "times": dict(result.task.times),
                "rows": {
                    row.detector: {name: _rounded(value) for name, value in row.measures.items() if value is not None}
                    | ({} if row.oracle is None else {"oracle": _rounded(row.oracle), "oracle_at": row.oracle_at})
                    for row in result.rows
                    if row.kind != "published"
                },
            }
            for result in results
        },
    }


def _rounded(value: float) -> float:
    return round(float(value), 4)
