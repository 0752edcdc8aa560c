"""How long a key with a season is not bet on after a warm-up.

At arming the bags hold some hours of a day, say. What no harmonics take out, an edge or a lively hour, is beyond all of
that when it comes for the first time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.civil import DAY_MS
from kstream_worker.detectors.ranks_layout import LEFT_IN, SEASON_TESTED, SEASONS, V_SIZE, Layout

TURNS = 2  # of the shortest period that a bag holds before there are bets


def season_wait(state: NDArray[np.int64], rate: float, layout: Layout) -> int:
    """Milliseconds until the bag holds the shortest period twice; 0 without a season.

    Where two periods do not fit into the bag, one has to do; where not even one does, the bag never holds what was at
    the same hour, and it is no use to wait.

    Args:
        state: the key's integers, just armed.
        rate: its samples per day.
        layout: of the row.
    """
    seasonal = state[SEASONS] != 0 or state[SEASON_TESTED] == LEFT_IN
    period = rate * layout.period / DAY_MS if layout.periods and seasonal else 0.0  # samples
    turns = min(TURNS, int(layout.v_room / period)) if 0.0 < period < math.inf else 0
    missing = turns * period - int(state[V_SIZE])
    return math.ceil(missing * DAY_MS / rate) if missing > 0.0 and turns else 0
