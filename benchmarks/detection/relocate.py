"""Changes found again once an alarm is there: a rank split of the series since the last of them.

At an alarm the rows since the change that the alarm before named (at first: all) are split where Mann and Whitney's
statistic of the two parts, in its standard deviations, is largest (Pettitt, A non-parametric approach to the
change-point problem, Applied Statistics 28, 1979): of the feature that leads the alarm, else the sum of its squares
over all features. No row after the alarm is used.
"""

from __future__ import annotations

import numpy as np

from benchmarks.detection.series import Floats, Found, Series

LEAST = 2  # rows on each side


def again(series: Series, found: Found) -> Found:
    """The same alarms with changes found again."""
    changes: list[int] = []
    for k, row in enumerate(found.alarms):
        first = changes[-1] if changes else 0
        part = series.values[first : row + 1]
        if found.leading:
            part = part[:, [found.leading[k]]]
        changes.append(first + rank_split(part) if len(part) >= 2 * LEAST else found.changes[k])
    return Found(found.alarms, tuple(changes), found.levels, found.leading, found.repeats)


def rank_split(values: Floats) -> int:
    """The first row of the second part.

    Args:
        values: float64[n, d], n at least 4.
    """
    n = len(values)
    k = np.arange(LEAST, n - LEAST + 1)
    squares = np.zeros(len(k))
    for feature in values.T:
        low = np.cumsum(_mid_ranks(feature))[k - 1]
        squares += (low - k * (n + 1) / 2.0) ** 2 / (k * (n - k))
    return int(k[np.argmax(squares)])


def _mid_ranks(x: Floats) -> Floats:
    """Ranks from 1; equal values share theirs."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[place], dtype=np.float64)
