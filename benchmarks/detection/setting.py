"""The one setting of our detector in this benchmark, and the times that follow each data set's purpose.

What is chosen here is chosen by what the data are for, before any score is seen, and is the same for every series of a
data set; nothing is fitted to labels.
"""

from __future__ import annotations

from typing import Any

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# The same everywhere. A = 1,000: these series hold 50 to 18,000 samples and about one change in 2,000; the default of a
# service (a million) is meant for streams that run for months. `hold`: most of the labelled events end, and the
# old regime comes back.
EVERYWHERE: dict[str, Any] = {"arl": 1000.0, "dependence": "auto", "on_alarm": "hold"}

# What differs is in time, or is the length of the part that a data set gives for learning.
NAB: dict[str, Any] = {"dead_time_ms": DAY_MS}  # an operator is called about a metric once a day at most
SKAB: dict[str, Any] = {"dead_time_ms": 10_000}  # a valve closes and opens again within minutes; both are asked for
TCPD: dict[str, Any] = {"dead_time_ms": 0}  # all changes are asked for; a row is no time
WATER_FLOW: dict[str, Any] = {"dead_time_ms": DAY_MS}

WARM_UP_WITHOUT_TRAINING = 60  # rows, where a data set names no part for learning: the least that `auto` takes
SWEPT_ARL = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 1e6)  # of the oracle's figure only
