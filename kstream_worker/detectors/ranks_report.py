"""What a key's state says when a column crosses: score, direction, change time, features, guarantee."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.bets import BOTH, DIRECTION_NAMES, DOWN, TWO_SIDED, TWO_SIDED_DIRECTION, UP
from kstream_worker.detectors.explanation import explain
from kstream_worker.detectors.ranks_guarantee import guarantee_of
from kstream_worker.detectors.ranks_layout import (
    BEST,
    EVEN_EVEN,
    EVEN_ODD,
    LEVEL_BETS,
    PICKED,
    SEQ,
    TAIL_ENTRIES,
    WHITENED,
    Layout,
    hidden_scores,
)
from kstream_worker.detectors.ranks_rows import runs_of_column
from kstream_worker.detectors.ranks_spikes import LAST
from kstream_worker.detectors.remembered import StreamKey
from kstream_worker.detectors.whitening import AR_ORDER

_OFF = 1.0  # warm-up scales by which a level must be off to be called so
_SMALLEST_RUN = 20.0  # a run has to have paid this much to say anything about its features


SPIKES_REASON = (
    "The alarm is for the size of single samples, whose probability under no change is extrapolated from a Pareto tail "
    "that is fitted to the key's former samples: it holds as far as that fits."
)
OTHERS_REASON = "The stated rate of all other scores together, which have {:.0%} of the weight, does not depend on it."


def scores_of_samples(names: tuple[str, ...], layout: Layout) -> tuple[report.Score, ...]:
    """The fixed scores: features, the radius, products of two."""
    return report.fixed_scores(
        names, radius=layout.v_rows > layout.dims, products=layout.fixed > layout.v_rows, squares=False
    )


def column_scores(names: tuple[str, ...], layout: Layout, picked: int = 0) -> tuple[report.Score, ...]:
    """All columns in their order.

    Fixed scores, means of 25 samples (`mean(f)`), the learned score, sizes of single samples (`spike(f)`), and of the
    candidates the one that is picked: `|a|*b`, `|a|*|b|`, `a*b*c` or `a*b`; then levels (`level(f)`).
    """
    fixed = scores_of_samples(names, layout)
    means = tuple(report.Score(f"mean({name})", (j,)) for j, name in enumerate(names))
    learned = report.Score(report.LEARNED, ())
    spikes = tuple(report.Score(f"spike({name})", (j,)) for j, name in enumerate(names[: layout.spike_count]))
    pick = tuple(_hidden(names, entry) for entry in hidden_scores(layout.dims)[picked : picked + 1])
    levels = tuple(report.Score(f"level({name})", (j,)) for j, name in enumerate(names[: layout.level_count]))
    return (*fixed, *means, learned, *spikes, *pick, *levels)


def _hidden(names: tuple[str, ...], entry: tuple[int, ...]) -> report.Score:
    kind, *features = entry
    form = {EVEN_ODD: "|{}|*{}", EVEN_EVEN: "|{}|*|{}|"}.get(kind, "*".join(["{}"] * len(features)))
    return report.Score(form.format(*(names[j] for j in features)), tuple(features))


def read_crossing(
    row: NDArray[np.float64],
    shorts: NDArray[np.int16],
    state: NDArray[np.int64],
    layout: Layout,
    names: tuple[str, ...],
) -> report.Crossing:
    """Read the crossing from a key's state: the column that crossed, and what the history says of it, if there is one.

    Args:
        row: float64[layout.floats], the key's floats.
        shorts: int16[layout.shorts], the key's shorts.
        state: int64[layout.ints], the key's integers.
        layout: of the row.
        names: of the features.
    """
    crossing = _read_runs(row, state, layout, names)
    if not layout.length:
        return crossing
    column = int(state[BEST])
    scores = column_scores(names, layout, int(state[PICKED]))
    picked = scores[layout.hidden : layout.level] if column == layout.hidden else ()
    looked_at = scores[: layout.fixed] + picked
    spike = layout.spikes <= column < layout.hidden
    key = StreamKey(row, shorts, state, layout, names, looked_at)
    told = explain(key, _place_of(column, layout), spike=spike)
    return crossing if told is None else crossing._replace(**told._asdict())


def _place_of(column: int, layout: Layout) -> int | None:
    """Which of the scores that are looked at a column ranks; None of the learned one."""
    if column < layout.fixed:
        return column
    if column < layout.learned:
        return column - layout.fixed
    if column >= layout.level:
        return column - layout.level
    if column == layout.hidden:
        return layout.fixed
    return column - layout.spikes if column >= layout.spikes else None


def _read_runs(
    row: NDArray[np.float64], state: NDArray[np.int64], layout: Layout, names: tuple[str, ...]
) -> report.Crossing:
    """What bets alone say.

    The change is where the best-paying run of the column that crossed began. Its direction is the side whose bets
    paid; the learned score has none of its own and takes that of the first feature. Features are weighed by the
    logarithm of the best run of each score they are part of (runs that paid 20 at least).
    """
    scores = column_scores(names, layout, int(state[PICKED]))
    column = int(state[BEST])
    runs = singles_of(row, layout.run_product, layout.locators)
    ends = [first + count for first, count in (runs_of_column(layout, c) for c in range(layout.level))]
    levels = row[layout.values + layout.level : layout.values + layout.columns]  # which have no runs of their own
    best = np.concatenate([np.maximum.reduceat(runs, [0, *ends[:-1]]), levels])
    paid = np.where(best > _SMALLEST_RUN, np.log(np.maximum(best, 1.0)), 0.0)
    features = report.share_evidence(names, scores, paid.tolist())
    leading = names.index(features[0][0])
    first, count = runs_of_column(layout, column)
    at = first + int(np.argmax(runs[first : first + count]))
    return report.Crossing(
        score=scores[column].name,
        change_seq=whole(int(singles_of(row, layout.run_seq, layout.locators).view(np.uint32)[at]), int(state[SEQ])),
        change_time=int(row[layout.run_time + at]),
        direction=_side(row, state, column, leading, layout),
        features=features,
    )


def _side(row: NDArray[np.float64], state: NDArray[np.int64], column: int, leading: int, layout: Layout) -> str:
    if layout.spikes <= column < layout.hidden:
        entry = (column - layout.spikes) * TAIL_ENTRIES + LAST
        last = singles_of(row, layout.tails, TAIL_ENTRIES * layout.spike_count)[entry]
        return DIRECTION_NAMES[UP if last > 0.0 else DOWN]
    if column >= layout.level:
        up, down = singles_of(row, layout.R, layout.bets)[layout.R_level + LEVEL_BETS * (column - layout.level) :][:2]
        return DIRECTION_NAMES[UP if up > down else DOWN]
    if state[WHITENED] == 1:
        return _level(row, leading, layout)
    return _direction(row, column if column < layout.learned else leading, layout)


def singles_of(row: NDArray[np.float64], at: int, n: int) -> NDArray[np.float32]:
    """As `ranks_layout.singles`, for code that is not compiled."""
    return row[at : at + (n + 1) // 2].view(np.float32)[:n]


def whole(low: int, now: int) -> int:
    """The number at or before `now` that ends in these 32 bits."""
    return now - (now - low) % 2**32


def _direction(row: NDArray[np.float64], column: int, layout: Layout) -> str:
    held = singles_of(row, layout.R, layout.bets)[column * TWO_SIDED : (column + 1) * TWO_SIDED].tolist()
    up, down = (max(held[k] for k in range(TWO_SIDED) if TWO_SIDED_DIRECTION[k] == side) for side in (UP, DOWN))
    return report.direction_of(up, down)


def _level(row: NDArray[np.float64], feature: int, layout: Layout) -> str:
    """`up` or `down` where the feature's last eight values lie on average more than a warm-up scale off, else `both`.

    Whitened, the bets see innovations: after a rise of the level these may well be low more often than high, as the
    autoregression expects a return. So the values themselves are asked.
    """
    start = layout.ring + feature * AR_ORDER
    level = float(row[start : start + AR_ORDER].mean())
    return DIRECTION_NAMES[UP if level > _OFF else DOWN if level < -_OFF else BOTH]


def guarantee_of_alarm(
    state: NDArray[np.int64], arl: float, layout: Layout, weights: NDArray[np.float64]
) -> report.Guarantee:
    """What may be said of the alarm that is being raised, with the reason."""
    guarantee = guarantee_of(state, arl, layout)
    if guarantee.level == "none" or not layout.spikes <= state[BEST] < layout.hidden:
        return guarantee
    if guarantee.level == "approximate":
        return report.Guarantee("approximate", f"{guarantee.reason} {SPIKES_REASON}")
    others = 1.0 - float(weights[layout.spikes : layout.hidden].sum())
    return report.Guarantee("approximate", f"{SPIKES_REASON} {OTHERS_REASON.format(others)}")
