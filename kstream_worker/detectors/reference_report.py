"""What a key's state says when a column crosses against a frozen reference, and what may be promised of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.bets import DOWN, UP
from kstream_worker.detectors.explanation import explain
from kstream_worker.detectors.ranks_layout import BEST, LEVELS_LEFT, SEQ, SQUARES_LEFT, V_SIZE, Layout
from kstream_worker.detectors.ranks_report import scores_of_samples, singles_of, whole
from kstream_worker.detectors.reference_bets import LEARNED_PAYOFFS, PAYOFF_DIRECTION, PAYOFFS, SIDED_BETS, STAKES
from kstream_worker.detectors.reference_layout import FROM_FILE, FROM_SHARED, LATE, LEFT_OVER, ORIGIN
from kstream_worker.detectors.remembered import FrozenKey

_SMALLEST_RUN = 20.0  # a run has to have paid this much to say anything about its features


def read_crossing(
    row: NDArray[np.float64],
    shorts: NDArray[np.int16],
    state: NDArray[np.int64],
    layout: Layout,
    names: tuple[str, ...],
) -> report.Crossing:
    """Read the crossing from a key's state: the column that crossed, and what the last samples say of it.

    The change is where those split best, or where the best-paying run of bets began, if it may lie before them.

    Args:
        row: float64[layout.floats], the key's floats.
        shorts: int16[layout.shorts], the key's shorts.
        state: int64[layout.ints], the key's integers.
        layout: of the row.
        names: of the features.
    """
    crossing = _read_runs(row, state, layout, names)
    scores = scores_of_samples(names, layout)
    column = int(state[BEST])
    crossed = column if column < len(scores) else None
    told = explain(FrozenKey(row, shorts, state, layout, names, scores), crossed)
    if told is None:
        return crossing
    if told.explanation.change_seq_low is None:
        told = told._replace(change_seq=crossing.change_seq, change_time=crossing.change_time)
    return crossing._replace(**told._asdict())


def _read_runs(
    row: NDArray[np.float64], state: NDArray[np.int64], layout: Layout, names: tuple[str, ...]
) -> report.Crossing:
    """What bets alone say.

    The change is where the best-paying run of the column that crossed began. Its direction is the side whose bets
    paid; the learned score takes that of the first feature. Features are weighed by the logarithm of the best run of
    each score they are part of (runs that paid 20 at least).
    """
    scores = scores_of_samples(names, layout)
    column = int(state[BEST])
    learned = column == len(scores)
    runs = singles_of(row, layout.run_product, layout.locators)
    best = runs[: len(scores) * PAYOFFS].reshape(-1, PAYOFFS).max(axis=1)
    paid = np.where(best > _SMALLEST_RUN, np.log(np.maximum(best, 1.0)), 0.0)
    features = report.share_evidence(names, scores, paid.tolist())
    first = column * PAYOFFS
    at = first + int(np.argmax(runs[first : first + (LEARNED_PAYOFFS if learned else PAYOFFS)]))
    return report.Crossing(
        score=report.LEARNED if learned else scores[column].name,
        change_seq=whole(int(singles_of(row, layout.run_seq, layout.locators).view(np.uint32)[at]), int(state[SEQ])),
        change_time=int(row[layout.run_time + at]),
        direction=_direction(row, names.index(features[0][0]) if learned else column, layout),
        features=features,
    )


def lead_of(row: NDArray[np.float64], state: NDArray[np.int64], layout: Layout) -> int:
    """The payoff that leads a crossing: its place among those of all columns."""
    column = int(state[BEST])
    payoffs = PAYOFFS if column < layout.fixed else LEARNED_PAYOFFS
    held = singles_of(row, layout.R, layout.bets)[column * SIDED_BETS :][: payoffs * STAKES]
    return column * PAYOFFS + int(np.argmax(held.reshape(payoffs, STAKES).max(axis=1)))


def _direction(row: NDArray[np.float64], column: int, layout: Layout) -> str:
    held = singles_of(row, layout.R, layout.bets)
    best = held[column * SIDED_BETS : (column + 1) * SIDED_BETS].reshape(PAYOFFS, STAKES).max(axis=1)
    up, down = (float(best[PAYOFF_DIRECTION.index(side)]) for side in (UP, DOWN))
    return report.direction_of(up, down)


def guarantee_of(state: NDArray[np.int64], arl: float, delta: float, z: float, elsewhere: str) -> report.Guarantee:
    """What may be said of an alarm of this key, with the reason.

    Args:
        state: the key's integers.
        arl: stated average run length.
        delta: share of references for which the bound may fail.
        z: tolerance in standard deviations.
        elsewhere: where a reference was to come from: `file`, `range`, or empty for the key's first samples.
    """
    n = int(state[V_SIZE])
    origin = f" The reference is {_origin(state, n, elsewhere)}."
    if state[LEFT_OVER] == LEVELS_LEFT:
        return report.Guarantee(
            "none",
            "The samples of the reference are serially dependent (Ljung-Box): no rate of false alarms can be stated."
            + origin,
        )
    if state[LEFT_OVER] == SQUARES_LEFT:
        return report.Guarantee(
            "none",
            "The size of deviations is serially dependent in the reference (Ljung-Box test of squares; volatility "
            "comes in clusters): no rate of false alarms can be stated." + origin,
        )
    return report.Guarantee(
        "approximate",
        "If the reference and all later samples of the key are independent and identically distributed: with "
        f"probability of about {1.0 - delta:.6g} over the reference sample, the chance of a false alarm from the fixed "
        f"scores within t samples is at most t/{2.0 * arl:.12g}; for the learned score this is measured, not proved. "
        f"Differences smaller than about {0.6 * z / max(1, n) ** 0.5:.2g} in rank mean are mostly ignored, by design."
        + origin,
    )


def _origin(state: NDArray[np.int64], n: int, elsewhere: str) -> str:
    if state[ORIGIN] == FROM_FILE:
        return f"{n} samples of this key in the reference file"
    if state[ORIGIN] == FROM_SHARED:
        return f"the {n} samples without a key in the reference file, which has none of this key"
    if elsewhere == "file":
        return f"the key's first {n} samples, since the reference file has none of it"
    if elsewhere == "range":
        late = ", some of them after its end, since too few lay in it" if state[LATE] == 1 else ""
        return f"{n} samples of the key from the configured time range{late}"
    return f"the key's first {n} samples"
