"""Daily and weekly seasons in a key's history, judged on days and weeks that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kstream_worker.records import FloatColumn, IntColumn

DAY_S = 86_400
WEEK_S = 7 * DAY_S
_BINS = {DAY_S: 24, WEEK_S: 7 * 24}
_FEWEST_PERIODS = 4
_SHARE = 0.1  # of the variance; less is not worth a setting
_WEEK_GAIN = 0.05  # by which a week must explain more than a day to be called one
_CLIP = 5.0


@dataclass(frozen=True, slots=True)
class Season:
    """A season of one feature: `share` of the variance of periods that were not used to fit it is explained by it."""

    feature: str
    period_s: int
    share: float


def seasons_of(names: tuple[str, ...], times: IntColumn, y: FloatColumn) -> list[Season]:
    """The strongest season of each feature that has one.

    Args:
        names: of the d features.
        times: int64[n], milliseconds; negative where unknown.
        y: float64[n, d].
    """
    if len(times) < 2 or times.min() < 0:
        return []
    found = []
    for name, values in zip(names, y.T, strict=True):
        day, week = explained(times, values, DAY_S), explained(times, values, WEEK_S)
        if week > max(_SHARE, day + _WEEK_GAIN):
            found.append(Season(name, WEEK_S, week))
        elif day > _SHARE:
            found.append(Season(name, DAY_S, day))
    return found


def explained(times: IntColumn, values: FloatColumn, period_s: int) -> float:
    """Share of the variance in every other period that the means by phase of the others explain; 0 for too few.

    Args:
        times: int64[n], milliseconds.
        values: float64[n].
        period_s: length of the season.
    """
    bins, period_ms = _BINS[period_s], 1000 * period_s
    cycles = times // period_ms
    too_short = int(times.max() - times.min()) < (_FEWEST_PERIODS - 1) * period_ms
    if too_short or len(np.unique(cycles)) < _FEWEST_PERIODS:
        return 0.0
    phases = times % period_ms * bins // period_ms
    center = np.median(values)
    scale = np.median(np.abs(values - center)) or values.std() or 1.0
    clipped = np.clip((values - center) / scale, -_CLIP, _CLIP)
    fit = cycles % 2 == 0
    counts = np.bincount(phases[fit], minlength=bins)
    sums = np.bincount(phases[fit], weights=clipped[fit], minlength=bins)
    test = ~fit & (counts[phases] > 0)
    if not fit.any() or not test.any():
        return 0.0
    means = sums / np.maximum(counts, 1)
    level = clipped[test].mean()
    left = clipped[test] - means[phases[test]] - (level - means[phases[test]].mean())
    total = float(((clipped[test] - level) ** 2).sum())
    return max(0.0, 1.0 - float((left**2).sum()) / total) if total > 0.0 else 0.0
