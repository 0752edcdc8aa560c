"""What may be said of an alarm of the rank detector: the level of its guarantee and the reason, from a key's state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.ranks_layout import (
    CHANGES,
    HELD,
    KEEPING,
    LEFT_IN,
    LEFT_OVER,
    LEVELS_LEFT,
    MEANS,
    RESTLESS,
    SEASON_FIRST,
    SEASON_STARTED,
    SEASON_TESTED,
    SEASONS,
    SLOT_LATEST,
    SQUARES_LEFT,
    STRIDE,
    THINNED,
    UNIT_ROOTS,
    VOLATILE,
    WHITENED,
    Layout,
)

State = NDArray[np.int64]

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
MANY = 3  # alarms in a row, each soon after an arming
_DAY_SPAN, _WEEK_SPAN = 72, 504  # hours that `auto` must have seen to look for a season


def guarantee_of(state: State, arl: float, layout: Layout) -> report.Guarantee:
    """What may be said of a key, with the reason.

    Args:
        state: the key's integers.
        arl: stated samples between false alarms.
        layout: of the row.
    """
    done = tuple(_done(state, layout))
    left = " ".join(_left(state, layout))
    if left:
        return report.Guarantee("none", " ".join((*done, left, "No rate of false alarms can be stated.")))
    # Nothing exact is known of sizes of single samples, so that no bound is one of all scores together.
    which = " for anything but the size of single samples (`spike`)" if layout.spike_count else ""
    if done:
        return report.Guarantee(
            "approximate",
            f"{' '.join(done)} The mean number of samples to a false alarm{which} is at least {arl:.12g} only as far "
            "as what is ranked is independent and identically distributed.",
        )
    return report.Guarantee(
        "exact_if_iid",
        "If the samples of the key are independent and identically distributed from the warm-up before its last arming "
        f"on, the mean number of samples from arming to a false alarm{which} is at least {arl:.12g}, and the "
        f"probability of one within the first t of them is at most t/{2 * arl:.12g}, whatever the distribution, ties "
        "included. Dependence between samples voids this.",
    )


def _left(state: State, layout: Layout) -> Iterator[str]:
    """Why no rate can be stated."""
    not_sought = _not_sought(state, layout)
    if not_sought:
        yield not_sought
    if state[SEASON_TESTED] == LEFT_IN:
        yield "A season was found and is left in, as harmonics do not follow its edges; it may raise alarms."
    if state[UNIT_ROOTS] > 0:
        yield (
            f"Not stationary: in {state[UNIT_ROOTS]} of {layout.dims} features a unit root was not rejected (Dickey-"
            "Fuller, 5 %); a shift of level cannot be told from their course, and what is ranked are innovations."
        )
    if state[RESTLESS] >= MANY:
        yield f"Not stationary: the last {state[RESTLESS]} alarms each came soon after an arming."
    if state[LEFT_OVER] == LEVELS_LEFT:
        what = "innovations of the fitted autoregressions" if state[WHITENED] == 1 else "samples that are ranked"
        yield f"The {what} were still serially dependent in the warm-up (Ljung-Box)."
    elif state[LEFT_OVER] == SQUARES_LEFT:
        yield (
            "The size of deviations was serially dependent in the warm-up (Ljung-Box test of squares; volatility comes "
            "in clusters)."
        )


def _done(state: State, layout: Layout) -> Iterator[str]:
    """What was done to the samples before they are ranked, one sentence each."""
    if state[KEEPING] == CHANGES:
        yield (
            "Values are held: samples that repeat their predecessor are left out, up to "
            f"{state[STRIDE]} in a row, and credited to the next that is ranked."
        )
    elif state[KEEPING] == THINNED:
        yield f"One of {state[STRIDE]} samples is ranked and stands for all of them."
    elif state[KEEPING] == MEANS:
        yield f"Means of {state[STRIDE]} samples are ranked."
    seasons = _taken_out(state, layout)
    if seasons:
        yield f"Seasons of {seasons} are taken out{' as found by a test' if layout.season_auto else ''}."
    if state[WHITENED] == 1:
        yield (
            "Ranked are innovations of autoregressions, as the warm-up may be serially dependent or the setting asks "
            "for it."
        )
    if state[VOLATILE] > 0:
        yield (
            f"Volatility comes in clusters in {state[VOLATILE]} features, whose innovations are divided by a predicted "
            "size: a change of their variance shows in part only."
        )
    if state[HELD] == 1:
        yield (
            "The key was armed again after a held alarm with bags that keep samples from before that, so that these "
            "must no longer matter."
        )


def _taken_out(state: State, layout: Layout) -> str:
    """The seasons that are taken out, in words; empty where there are none."""
    periods = (layout.period, layout.period_2, layout.period_3)[: layout.periods]
    return " and ".join(_duration(period) for p, period in enumerate(periods) if state[SEASONS] >> p & 1)


def _not_sought(state: State, layout: Layout) -> str:
    """Which season `auto` could not look for yet; empty where it could look for both, or has found them."""
    if not layout.season_auto or state[SEASON_TESTED] == LEFT_IN:
        return ""
    seen = int(state[SLOT_LATEST] - state[SEASON_FIRST] // layout.slot_ms) if state[SEASON_STARTED] == 1 else 0
    if seen < _DAY_SPAN and not state[SEASONS] & 1:
        return "Less than three days were seen: a daily season could not be looked for yet, and may raise alarms."
    if seen < _WEEK_SPAN and not state[SEASONS] & 2:
        return "Less than three weeks were seen: a weekly season could not be looked for yet, and may raise alarms."
    return ""


def _duration(period: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if period % size == 0)
    return f"{period // size} {unit}"
