"""The reference of endpoints and metrics, written from the code.

`python -m kstream_worker.telemetry.reference > docs/metrics.md` writes the page; a test holds the page to the code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from kstream_worker.telemetry.families import COUNTERS, GAUGES, HISTOGRAMS, PREFIX, PROCESS_GAUGES, Description

_INTRODUCTION = """\
# Metrics and health

Every worker serves HTTP on `telemetry.host` and `telemetry.port` (see [configuration](configuration.md)), without
authentication:

| path | answer |
|---|---|
| `/metrics` | the metrics below, in Prometheus's text format |
| `/healthz` | 200 while the loop turns and no partition with lag and no restore stands still, else 503 \
(`worker.progress_timeout`) |
| `/readyz` | 200 while all of the assigned partitions are restored and being read, else 503; `restoring`: how far \
each restore is, in offsets of the state topic |
| `/alarms` | the keys in alarm as JSON, up to 1000 of them; `in_alarm` counts all, `dropped_total` those left out |

No label holds a key of a record: which keys are in alarm stands in the alarms topic and in `/alarms`. There are
`process_` metrics too. The values of `reason` are in [schemas/README.md](../schemas/README.md). `deploy/` has alert
rules and a dashboard.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def _labels(about: Description) -> str:
    values = f": {', '.join(about.known)}" if about.known else ""
    return ", ".join(about.labels) + values


def _rows(families: Mapping[str, Description], kind: str, suffix: str = "") -> list[str]:
    return [
        f"| `{PREFIX}{name}{suffix}` | {kind} | {_labels(about)} | {about.help} |\n" for name, about in families.items()
    ]


def page() -> str:
    """The whole page in Markdown."""
    rows = [
        *_rows(COUNTERS, "counter", "_total"),
        *_rows({**GAUGES, **PROCESS_GAUGES}, "gauge"),
        *_rows(HISTOGRAMS, "histogram"),
    ]
    return _INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
