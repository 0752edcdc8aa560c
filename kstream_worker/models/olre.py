"""Online likelihood-ratio estimation in bounded memory: a bank of many keys, and `OLRE` for one (paper 004).

The relative ratio r = q / ((1 - alpha) p + alpha q) of the live side y ~ q to the reference x ~ p is estimated as
f = 1 + u, u in the span of at most M Gaussian kernels whose centres a warm-up chooses. Two estimators:

- `rls` (default): recursive least squares, the exact minimiser of the regularised empirical risk (eq. 10) there.
- `sgd`: the functional stochastic gradient of Algorithm 1 projected on that span, constant step, averaged iterates.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kstream_worker.models import nystrom, olre_kernel
from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.olre_kernel import INTS, RLS, SGD, SUMS, Plan
from kstream_worker.records import FloatColumn, FloatMatrix, IntColumn, Scores, Transition

ESTIMATORS = {"rls": RLS, "sgd": SGD}
RIDGE = 1.0  # of the summed, not the mean, squares: it fades as 1 / t
WIDTH = 0.7  # of the kernel, in median distances of the scaled warm-up
# On the line a narrow kernel and a small ridge follow jumps of the ratio, at the price of two to three times the error
# where it is smooth. Chosen on experiment I of the paper, whose ratio jumps.
RIDGE_1D = 0.3
WIDTH_1D = 0.35
MANY_DIMS = 10  # from here on 100 atoms


class OlreBank(SlotBank):
    """Likelihood-ratio models of many keys; estimates only, no detector (evidence 0, no transitions). A `ports.Bank`.

    Args:
        dims: features of one side, d.
        estimator: `rls` or `sgd`.
        alpha: weight of the live side in the denominator, 0 <= alpha < 1; f is bounded by 1 / alpha.
        atoms: most kernel centres, at least 4, in fours (50 means 48); default 50, from 10 dimensions on 100.
        warmup: pairs that fix scale, kernel width and centres, at least 10; the estimator then learns from them too.
        gamma: forgetting of `rls` and of the divergence, 0 < gamma <= 1; 1 forgets nothing.
        seed: part of the configuration that snapshots are held to; nothing here draws at random.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        dims: int,
        *,
        estimator: str = "rls",
        alpha: float = 0.1,
        atoms: int | None = None,
        warmup: int = 200,
        gamma: float = 1.0,
        seed: int = 0,
    ) -> None:
        if atoms is None:
            atoms = 100 if dims >= MANY_DIMS else 50
        _check(dims, estimator, alpha, atoms, warmup, gamma)
        self.dims = dims
        self._plan = _lay_out(dims, ESTIMATORS[estimator], alpha, atoms, warmup, gamma)
        self._scratch = olre_kernel.make_scratch(self._plan)
        settings = {
            "dims": dims,
            "estimator": estimator,
            "alpha": alpha,
            "atoms": atoms,
            "warmup": warmup,
            "gamma": gamma,
            "seed": seed,
        }
        super().__init__(SlotArrays("olre", fingerprint_of(settings), seed, floats=self._plan.floats, ints=INTS))

    @property
    def threshold(self) -> float:
        """Infinite: this bank has no detector."""
        return math.inf

    def retune(self, arl: float) -> None:
        """Nothing to do: this bank raises no alarms."""

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Score each pair with its key's model, then let it update that model; see `ports.Bank`."""
        slots, x, y, times = self._slots.check_pairs(slots, x, y, times, self.dims)
        n = len(slots)
        state = np.zeros(n, dtype=np.int8)
        seq = np.zeros(n, dtype=np.int64)
        log_ratio = np.empty(n)
        divergence = np.empty(n)
        clipped = olre_kernel.walk(
            self._plan,
            self._slots.floats,
            self._slots.ints,
            slots,
            x,
            y,
            self._scratch,
            state,
            seq,
            log_ratio,
            divergence,
        )
        return Scores(state, seq, log_ratio, divergence, np.zeros(n), np.full(n, np.inf), [], int(clipped))

    def ratio(self, slot: int, z: FloatMatrix) -> FloatColumn:
        """The estimated relative ratio at points; changes nothing.

        Args:
            slot: of the key.
            z: float64[n, d], in the units of the samples.

        Returns:
            float64[n]: f(z), which may be negative where the estimate is poor; NaN while the key warms up.
        """
        _, z, _ = self._slots.check_samples(
            np.full(len(z), slot, dtype=np.int64), z, np.zeros(len(z), dtype=np.int64), self.dims
        )
        ratio = np.empty(len(z))
        olre_kernel.evaluate(self._plan, self._slots.floats[slot], self._slots.ints[slot], z, self._scratch, ratio)
        return ratio

    def divergence(self, slot: int) -> float:
        """Running Pearson divergence of the key (eq. 8c), NaN before its first armed pair."""
        return float(olre_kernel.current_divergence(self._plan, self._slots.floats[slot]))

    def forget(self, slot: int) -> Transition | None:  # noqa: ARG002
        """None: without a detector no alarm is ever up."""
        return None

    def raised(self, slot: int) -> bool:  # noqa: ARG002
        """False: without a detector no alarm is ever up."""
        return False

    def seq(self, slot: int) -> int:
        """Pairs of the key so far."""
        return int(self._slots.ints[slot, olre_kernel.SEQ])


class OLRE:
    """The relative likelihood ratio of two streams, estimated online: `OlreBank` with one slot.

    Args:
        dims: features of one side, d.
        estimator, alpha, atoms, warmup, gamma: as for `OlreBank`.

    Example:
        >>> model = OLRE(dims=1)
        >>> rng = np.random.default_rng(0)
        >>> scores = model.update(rng.normal(size=(2000, 1)), rng.normal(1.0, size=(2000, 1)))
        >>> bool(model.ratio([[2.0]])[0] > 1.0 > model.ratio([[-2.0]])[0])
        True
    """

    def __init__(
        self,
        dims: int,
        *,
        estimator: str = "rls",
        alpha: float = 0.1,
        atoms: int | None = None,
        warmup: int = 200,
        gamma: float = 1.0,
    ) -> None:
        self._bank = OlreBank(dims, estimator=estimator, alpha=alpha, atoms=atoms, warmup=warmup, gamma=gamma)
        self._slot = self._bank.allocate(b"")

    def update(self, x: ArrayLike, y: ArrayLike) -> Scores:
        """Score pairs, then learn from them.

        Args:
            x: reference side: one sample (d numbers), or float64[n, d]; with d = 1 also float64[n].
            y: live side, alike.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        left, right = self._points(x), self._points(y)
        n = len(right)
        slots = np.full(n, self._slot, dtype=np.int64)
        return self._bank.update(slots, left, right, np.zeros(n, dtype=np.int64))

    def ratio(self, z: ArrayLike) -> FloatColumn:
        """f(z) at points, float64[n], NaN while warming up; changes nothing. `z` as in `update`."""
        return self._bank.ratio(self._slot, self._points(z))

    @property
    def divergence(self) -> float:
        """Running Pearson divergence (eq. 8c) from values made before each pair was learned; NaN while warming up."""
        return self._bank.divergence(self._slot)

    def snapshot(self) -> bytes:
        """All state, without pickle."""
        return self._bank.snapshot(self._slot)

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot of a model with the same settings; ValueError when it does not fit."""
        self._bank.restore(self._slot, snapshot)

    def _points(self, values: ArrayLike) -> NDArray[np.float64]:
        points = np.asarray(values, dtype=np.float64)
        if points.ndim < 2:
            points = points.reshape(-1, self._bank.dims) if points.size % self._bank.dims == 0 else points
        return points


def _check(dims: int, estimator: str, alpha: float, atoms: int, warmup: int, gamma: float) -> None:
    if dims < 1:
        raise ValueError(f"dims is {dims}; it must be at least 1")
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is {estimator!r}; it must be one of {', '.join(ESTIMATORS)}")
    if not 0.0 <= alpha < 1.0:
        raise ValueError(f"alpha is {alpha}; it must be in [0, 1)")
    if atoms < 4:
        raise ValueError(f"atoms is {atoms}; it must be at least 4")
    if warmup < 10:
        raise ValueError(f"warmup is {warmup}; it must be at least 10 pairs")
    if not 0.0 < gamma <= 1.0:
        raise ValueError(f"gamma is {gamma}; it must be in (0, 1]")


def _lay_out(dims: int, estimator: int, alpha: float, atoms: int, warmup: int, gamma: float) -> Plan:
    room = atoms - atoms % 4
    packed = nystrom.packed_size(room)
    averaged = room if estimator == SGD else 0
    sizes = [dims, dims, 1, SUMS, room, averaged, dims * room, packed, packed if estimator == RLS else 0]
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    at_weights = starts[4]
    return Plan(
        dims,
        room,
        warmup,
        estimator,
        alpha,
        gamma,
        RIDGE if dims > 1 else RIDGE_1D,
        WIDTH if dims > 1 else WIDTH_1D,
        nystrom.PIVOT_TOLERANCE,
        at_scale=starts[1],
        at_gain=starts[2],
        at_sums=starts[3],
        at_weights=at_weights,
        at_mean=starts[5],
        at_atoms=starts[6],
        at_inverse=starts[7],
        at_cov=starts[8],
        floats=max(starts[9], at_weights + 2 * warmup * dims),
    )
