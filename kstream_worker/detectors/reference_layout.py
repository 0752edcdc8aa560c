"""Where the detector against a frozen reference keeps the state of a key: a row as the rank detector has it.

While the reference is collected, the section behind `union` holds its samples; once it is frozen the same room holds
the learned score, the bets and their runs.
"""

from __future__ import annotations

from kstream_worker.detectors import ranks_rows
from kstream_worker.detectors.ranks_layout import (
    BLOCK_SUM,
    HEADER,
    MAX_PRODUCT_DIMS,
    NO_DEPENDENCE,
    PROFILES,
    Layout,
    Options,
)
from kstream_worker.detectors.ranks_rows import Cursor
from kstream_worker.detectors.reference_bets import LEARNED_BETS, LEARNED_PAYOFFS, PAYOFFS, SIDED_BETS

LEAST = 200  # samples that a reference must have: measured down to that, see docs/detection.md

# Columns of the integer row behind those of the rank detector.
(
    GOAL,  # samples of the reference
    ORIGIN,  # FROM_STREAM or one of the file
    LATE,  # 1 if samples from behind the configured time range had to be taken
    LEFT_OVER,  # dependence that the tests found in the reference: nothing, levels or squares
) = range(BLOCK_SUM, BLOCK_SUM + 4)
INTS = BLOCK_SUM + 4  # event times of the history follow

HISTORY = 128  # last samples, in steps, that an alarm is explained from

FROM_STREAM, FROM_FILE, FROM_SHARED = 0, 1, 2


def make_layout(dims: int, samples: int) -> Layout:
    """Lay out the row of a key of `dims` features whose reference has at most `samples` samples.

    V holds the whole reference in its order, so its second half is the end of every column. The learned score is
    trained against at most 500 samples of the first half and ranks in at most 500 of the second.
    """
    sizes = PROFILES["default"]
    radius = 1 if dims > 1 else 0
    fixed = dims + radius + (dims * (dims - 1) // 2 if 2 <= dims <= MAX_PRODUCT_DIMS else 0)
    bets = fixed * SIDED_BETS + LEARNED_BETS
    locators = fixed * PAYOFFS + LEARNED_PAYOFFS
    at = Cursor(8, {})
    at.take(HEADER, "counters")
    center, scale = at.take(dims, "scales"), at.take(dims, "scales")
    union = at.here
    packed = sizes.atoms * (sizes.atoms + 1) // 2
    cov, inverse = at.take(packed, "learned score"), at.take_singles(packed, "learned score")
    weights, duals = at.take(sizes.atoms, "learned score"), at.take_singles(sizes.atoms, "learned score")
    atoms = at.take_singles(sizes.atoms * dims, "learned score")
    h_scores = at.take_singles(sizes.learned, "learned bag")
    R, values = at.take_singles(bets, "bets"), at.take(fixed + 1, "bets")
    run_product, run_seq = at.take_singles(locators, "runs of bets"), at.take_singles(locators, "runs of bets")
    run_time = at.take(locators, "runs of bets")
    bags = Cursor(2, {})
    v_rows = dims + radius
    v_bag, h_bag = bags.take(v_rows * samples, "reference"), bags.take(dims * sizes.learned, "learned bag")
    t_ring = bags.take(dims * sizes.learned, "reference ring")
    bags.take(-bags.here % 4, "reference ring")  # samples of the reference may lie there, as float64
    at.take(max(0, samples * dims - (at.here - union) - bags.here // 4), "reference beyond the rest")
    steps = bags.take(HISTORY * dims, "history")
    # Of what the rank detector has besides, there is nothing: empty sections, no columns.
    layout = ranks_rows.make_layout(
        dims, samples, NO_DEPENDENCE, Options(spikes=False, transform="none", explained=False)
    )
    return layout._replace(
        fixed=fixed,
        columns=fixed + 1,
        level=fixed + 1,
        bets=bets,
        locators=locators,
        v_room=samples,
        center=center,
        scale=scale,
        union=union,
        cov=cov,
        inverse=inverse,
        weights=weights,
        duals=duals,
        atoms=atoms,
        h_scores=h_scores,
        R=R,
        values=values,
        run_product=run_product,
        run_seq=run_seq,
        run_time=run_time,
        floats=at.here,
        v_bag=v_bag,
        v_rows=v_rows,
        h_bag=h_bag,
        t_ring=t_ring,
        length=HISTORY,
        origin=center,
        steps=steps,
        shorts=bags.here,
        times=INTS,
        ints=INTS + HISTORY,
    )
