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
    LEFT_OVER,
    LEVELS_LEFT,
    MEANS,
    NOTHING_LEFT,
    STRIDE,
    THINNED,
    VOLATILE,
    WHITENED,
)

State = NDArray[np.int64]


def guarantee_of(state: State, arl: float) -> report.Guarantee:
    """What may be said of a key, with the reason.

    Args:
        state: the key's integers.
        arl: stated samples between false alarms.
    """
    done = tuple(_done(state))
    if state[LEFT_OVER] != NOTHING_LEFT:
        return report.Guarantee("none", " ".join((*done, _left(state))))
    if done:
        return report.Guarantee(
            "approximate",
            f"{' '.join(done)} The mean number of samples to a false alarm is at least {arl:.12g} only as far as what "
            "is ranked is independent and identically distributed.",
        )
    return report.Guarantee(
        "exact_if_iid",
        "If the samples of the key are independent and identically distributed from the warm-up before its last arming "
        f"on, the mean number of samples from arming to a false alarm is at least {arl:.12g}, and the probability of "
        f"one within the first t of them is at most t/{2 * arl:.12g}, whatever the distribution, ties included. "
        "Dependence between samples voids this.",
    )


def _left(state: State) -> str:
    """Why no rate can be stated."""
    if state[LEFT_OVER] == LEVELS_LEFT:
        what = "innovations of the fitted autoregressions" if state[WHITENED] == 1 else "samples that are ranked"
        return (
            f"The {what} were still serially dependent in the warm-up (Ljung-Box): no rate of false alarms can be "
            "stated."
        )
    return (
        "The size of deviations was serially dependent in the warm-up (Ljung-Box test of squares; volatility comes "
        "in clusters): no rate of false alarms can be stated."
    )


def _done(state: State) -> Iterator[str]:
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
