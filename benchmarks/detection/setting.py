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
# old regime comes back. Seasons are looked for: nobody here knows which of these series follow the clock.
EVERYWHERE: dict[str, Any] = {
    "arl": 1000.0,
    "dependence": "auto",
    "period": "auto",
    "on_alarm": "hold",
    "escalation": 10.0,
}

# What differs is in time. NAB: an operator is called about a metric once a day at most, about once a week if it goes
# on alarming.
NAB: dict[str, Any] = {"dead_time_ms": DAY_MS, "escalation_decay_ms": 7 * DAY_MS}
# SKAB: a valve closes and opens again within one to five minutes, and both are asked for.
SKAB: dict[str, Any] = {"dead_time_ms": 10_000, "escalation_decay_ms": MINUTE_MS}
# TCPD: all changes are asked for, and a row is no time: neither dead time nor decay.
TCPD: dict[str, Any] = {"dead_time_ms": 0, "escalation_decay_ms": 1}
# Water flow: the same operator as NAB's; its times carry the offsets of central Europe.
WATER_FLOW: dict[str, Any] = NAB | {"time_zone": "Europe/Rome"}

SWEPT_ARL = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 1e5, 1e6)  # of the oracle's figure only
