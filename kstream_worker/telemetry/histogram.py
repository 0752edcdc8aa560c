"""A histogram that takes a whole column at once: counting values one by one would cost more than scoring them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.utils import floatToGoString


class ColumnHistogram:
    """Counts of values at or below ascending bounds, and their sum. Not locked: its owner does that.

    Args:
        bounds: ascending, finite upper bounds, inclusive; a last one at infinity is added.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.asarray(bounds, dtype=np.float64)
        if not np.isfinite(self._bounds).all() or (np.diff(self._bounds) <= 0).any():
            raise ValueError("bounds of a histogram must be finite and ascending")
        self._below = np.zeros(len(self._bounds), dtype=np.int64)  # cumulative: at or below each bound
        self._count = 0
        self._sum = 0.0

    def observe(self, values: NDArray[np.float64] | float) -> None:
        """Count values; NaN is left out, infinite values count in the outer buckets but not in the sum.

        Sorting first, with NaN at the end, and looking up the few bounds in it is several times faster than looking up
        each value among the bounds.
        """
        column = np.sort(np.atleast_1d(np.asarray(values, dtype=np.float64)))
        column = column[: np.searchsorted(column, np.inf, side="right")]
        self._below += np.searchsorted(column, self._bounds, side="right")
        self._count += len(column)
        finite = column[np.searchsorted(column, -np.inf, side="right") : np.searchsorted(column, np.inf, side="left")]
        self._sum += float(finite.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts with their bounds as text, the last one `+Inf`."""
        names = [*map(floatToGoString, self._bounds.tolist()), "+Inf"]
        return list(zip(names, map(float, [*self._below.tolist(), self._count]), strict=True))

    @property
    def signed(self) -> bool:
        """Whether negative values belong to what is counted, as the lowest bound says."""
        return bool(self._bounds[0] < 0)

    @property
    def total(self) -> float:
        """Sum of the finite values."""
        return self._sum
