"""What a key's state says when a column crosses: score, direction, change time, features, guarantee."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.bets import BOTH, DIRECTION_NAMES, DOWN, TWO_SIDED, TWO_SIDED_DIRECTION, UP
from kstream_worker.detectors.ranks_layout import (
    BEST,
    HELD,
    LEFT_OVER,
    LEVELS_LEFT,
    ONE_SIDED_LOCATORS,
    SEQ,
    SQUARES_LEFT,
    TWO_SIDED_LOCATORS,
    WHITENED,
    Layout,
)
from kstream_worker.detectors.whitening import AR_ORDER

_OFF = 1.0  # warm-up scales by which a level must be off to be called so
_CLEARLY = 10.0  # by how much one side's bets must lead the other's
_SMALLEST_RUN = 20.0  # a run has to have paid this much to say anything about its features


def column_scores(names: tuple[str, ...], layout: Layout) -> tuple[report.Score, ...]:
    """The two-sided columns in their order: fixed scores, then means of 25 samples (`mean(f)`)."""
    fixed = report.fixed_scores(
        names, radius=layout.v_rows > layout.dims, products=layout.fixed > layout.v_rows, squares=False
    )
    return fixed + tuple(report.Score(f"mean({name})", (j,)) for j, name in enumerate(names))


def read_crossing(
    row: NDArray[np.float64], state: NDArray[np.int64], layout: Layout, names: tuple[str, ...]
) -> report.Crossing:
    """Read the crossing from a key's state.

    The change is where the best-paying run of the column that crossed began. Its direction is the side whose bets
    paid; the learned score has none of its own and takes that of the first feature. Features are weighed by the
    logarithm of the best run of each score they are part of (runs that paid 20 at least).
    """
    scores = column_scores(names, layout)
    column = int(state[BEST])
    learned = column == len(scores)
    runs = singles_of(row, layout.run_product, layout.locators)
    two_sided = runs[: len(scores) * TWO_SIDED_LOCATORS].reshape(-1, TWO_SIDED_LOCATORS)
    best = two_sided.max(axis=1)
    paid = np.where(best > _SMALLEST_RUN, np.log(np.maximum(best, 1.0)), 0.0)
    features = report.share_evidence(names, scores, paid.tolist())
    leading, whitened = names.index(features[0][0]), state[WHITENED] == 1
    first = column * TWO_SIDED_LOCATORS
    count = ONE_SIDED_LOCATORS if learned else TWO_SIDED_LOCATORS
    at = first + int(np.argmax(runs[first : first + count]))
    return report.Crossing(
        score=report.LEARNED if learned else scores[column].name,
        change_seq=whole(int(singles_of(row, layout.run_seq, layout.locators).view(np.uint32)[at]), int(state[SEQ])),
        change_time=int(row[layout.run_time + at]),
        direction=_level(row, leading, layout) if whitened else _direction(row, leading if learned else column, layout),
        features=features,
    )


def singles_of(row: NDArray[np.float64], at: int, n: int) -> NDArray[np.float32]:
    """As `ranks_layout.singles`, for code that is not compiled."""
    return row[at : at + (n + 1) // 2].view(np.float32)[:n]


def whole(low: int, now: int) -> int:
    """The number at or before `now` that ends in these 32 bits."""
    return now - (now - low) % 2**32


def _direction(row: NDArray[np.float64], column: int, layout: Layout) -> str:
    """`up` or `down` where the bets on that side hold ten times what those on the other hold, else `both`."""
    held = singles_of(row, layout.R, layout.bets)[column * TWO_SIDED : (column + 1) * TWO_SIDED].tolist()
    up, down = (max(held[k] for k in range(TWO_SIDED) if TWO_SIDED_DIRECTION[k] == side) for side in (UP, DOWN))
    if up >= _CLEARLY * down:
        return DIRECTION_NAMES[UP]
    return DIRECTION_NAMES[DOWN] if down >= _CLEARLY * up else DIRECTION_NAMES[BOTH]


def _level(row: NDArray[np.float64], feature: int, layout: Layout) -> str:
    """`up` or `down` where the feature's last eight values lie on average more than a warm-up scale off, else `both`.

    Whitened, the bets see innovations: after a rise of the level these may well be low more often than high, as the
    autoregression expects a return. So the values themselves are asked.
    """
    start = layout.ring + feature * AR_ORDER
    level = float(row[start : start + AR_ORDER].mean())
    return DIRECTION_NAMES[UP if level > _OFF else DOWN if level < -_OFF else BOTH]


def guarantee_of(state: NDArray[np.int64], arl: float) -> report.Guarantee:
    """What may be said of an alarm of this key, with the reason."""
    if state[LEFT_OVER] == LEVELS_LEFT:
        return report.Guarantee(
            "none",
            "The innovations of the fitted autoregressions were still serially dependent in the warm-up (Ljung-Box): "
            "no rate of false alarms can be stated.",
        )
    if state[LEFT_OVER] == SQUARES_LEFT:
        return report.Guarantee(
            "none",
            "The size of deviations was serially dependent in the warm-up (Ljung-Box test of squares; volatility comes "
            "in clusters): no rate of false alarms can be stated.",
        )
    if state[WHITENED] == 1:
        return report.Guarantee(
            "approximate",
            "Ranked are innovations of autoregressions, as the warm-up may be serially dependent or the setting asks "
            f"for it: the mean number of samples to a false alarm is at least {arl:.12g} only as far as innovations "
            "are independent and identically distributed.",
        )
    if state[HELD] == 1:
        return report.Guarantee(
            "approximate",
            "The key was armed again after a held alarm with bags that keep samples from before that: the stated mean "
            f"number of {arl:.12g} samples to a false alarm holds only as far as these no longer matter.",
        )
    return report.Guarantee(
        "exact_if_iid",
        "If the samples of the key are independent and identically distributed from the warm-up before its last arming "
        f"on, the mean number of samples from arming to a false alarm is at least {arl:.12g}, and the probability of "
        f"one within the first t of them is at most t/{2 * arl:.12g}, whatever the distribution, ties included. "
        "Dependence between samples voids this.",
    )
