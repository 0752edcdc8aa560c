"""Conditional mean embeddings of many keys in bounded memory: `CmeModel`, its kind, and `OnlineCME` for one key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.cme import intervals, judge, kernel
from kstream_worker.models.cme.arming import arm
from kstream_worker.models.cme.judge import SCORES, USUAL_ROWS
from kstream_worker.models.cme.kernel import FIXED_COLUMNS, INTS, Y_COLUMNS, Plan
from kstream_worker.models.cme.layout import RLS, ROW, Operator, check_forgetting, lay_out, make_work
from kstream_worker.models.contract import Column, Estimates, Features, Shape
from kstream_worker.records import FloatMatrix, IntColumn

ETA = 0.1  # nominal step of the rule of admission
NOVELTY = 0.1  # of unit length: what a pair must tell beyond the dictionary to be admitted
RIDGE = 0.03  # of the summed squares; more would draw predictions at inputs seldom met to the mean, all the same way
X_WIDTH = 0.7  # of the kernels, in median distances of the scaled warm-up
Y_WIDTH = 0.7
READY = 3  # scores are given after so many warm-ups
MOST_DRIVERS = 8
MIN_COVERAGE, MAX_COVERAGE = 0.5, 0.999
PER_Y = ("mean", "sd", "lower", "upper", "covered")  # what is said of each value of y


class CmeModel(SlotBank):
    """Conditional mean embeddings of y given x, one per key (paper 000, compressed and forgetting); a `contract.Model`.

    The operator U: phi(x) -> E[phi(y) | x] is held on at most `atoms` pairs in whitened coordinates and learned by
    recursive least squares with forgetting. Mean and standard deviation of each y are read off rows that are learned
    beside the operator for the functions y and y^2: exact, where weights on the compressed atoms would extrapolate.
    Quantiles of the embedding are not given: the atoms are chosen to span, not to represent, and their weights may be
    negative, so that a distribution function made of them is none. Intervals are given instead that, side by side, miss
    as often as stated in the long run, whatever comes (`intervals`).

    Args:
        x_names: of the input side's features.
        y_names: of the output side's features.
        atoms: most pairs in the dictionary, at least 8, in fours; memory and time grow with the square.
        warmup: pairs that fix scales and kernel widths, at least 20; the operator then learns from them too.
        forgetting: weight of a pair relative to the next one, at most 1, which forgets nothing; the more atoms, the
            nearer to 1 it must be (.977 with 48).
        coverage: share of pairs whose y lies in its interval in the long run, for each value of y; half of the rest
            lies on either side; .5 to .999.
        seed: part of the configuration that snapshots are held to; nothing here draws at random.

    Raises:
        ValueError: a setting is out of range; says which.
    """

    def __init__(
        self,
        x_names: tuple[str, ...],
        y_names: tuple[str, ...],
        *,
        atoms: int = 48,
        warmup: int = 200,
        forgetting: float = 0.998,
        coverage: float = 0.9,
        seed: int = 0,
    ) -> None:
        _check(x_names, y_names, atoms, warmup, forgetting, coverage)
        self.y_names = y_names
        self._plan, self._op = _lay_out(len(x_names), len(y_names), atoms, warmup, forgetting, coverage)
        self._scratch = kernel.make_scratch(self._op)
        self._work = make_work(self._op)
        settings = {
            "row": ROW,
            "x": len(x_names),
            "y": len(y_names),
            "atoms": self._op.room,
            "warmup": warmup,
            "forgetting": forgetting,
            "coverage": coverage,
            "seed": seed,
        }
        super().__init__(SlotArrays("cme", fingerprint_of(settings), seed, floats=self._plan.floats, ints=INTS))

    @property
    def columns(self) -> tuple[Column, ...]:
        """`mean.<y>`, `sd.<y>`, `lower.<y>` and `upper.<y>` (infinite where there is no limit), `covered.<y>`,
        `innovation`, `atoms`, `norm`.
        """
        names = [f"{what}.{name}" for what in PER_Y for name in self.y_names]
        return tuple(Column(name) for name in (*names, "innovation", "atoms", "norm"))

    @property
    def watched(self) -> tuple[str, ...]:
        """`innovation` and `drift`."""
        return ("innovation", "drift")

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Answer for each pair with its key's operator, then let it learn; see `contract.Model`."""
        op = self._op
        slots, x, y, _ = self.slots.check_pairs(slots, x, y, times, op.y_dims, x_dims=op.x_dims)
        values = np.full((len(slots), Y_COLUMNS * op.y_dims + FIXED_COLUMNS), np.nan)
        scores = np.full((len(slots), SCORES), np.nan)
        at = 0
        while at < len(slots):
            at = self._walk(at, slots, x, y, values, scores) + 1
            if at <= len(slots):
                self._arm(int(slots[at - 1]))
        return Estimates(values, scores)

    def drivers(self, slot: int) -> Features:
        """The outputs whose standardised errors were largest lately; see `contract.Model`."""
        at = self._plan.at_misfit
        misfit = self.slots.floats[slot, at : at + self._op.y_dims]
        if not misfit.any():
            return ()
        order = np.argsort(-misfit, kind="stable")[:MOST_DRIVERS]
        total = sum(misfit[order].tolist())
        return tuple((self.y_names[j], float(misfit[j]) / total) for j in order)

    def predict(self, slot: int, x: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
        """Conditional mean and standard deviation of y at points; changes nothing.

        Args:
            slot: of the key.
            x: float64[n, dx], in the units of the samples.

        Returns:
            float64[n, dy] each, NaN while the key warms up.
        """
        mean, sd, _, _ = self._moments(slot, x)
        return mean, sd

    def interval(self, slot: int, x: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
        """Between what limits each value of the next y would be said to lie, were x its input; changes nothing.

        Args:
            slot: of the key.
            x: float64[n, dx], in the units of the samples.

        Returns:
            float64[n, dy] each, lower and upper; infinite where there is no limit, NaN while the key warms up.
        """
        _, _, lower, upper = self._moments(slot, x)
        return lower, upper

    def embedding(self, slot: int, x: FloatMatrix, y: FloatMatrix) -> FloatMatrix:
        """(U phi(x_i))(y_j), the estimate of E[k(Y, y_j) | x_i], float64[n, k]; changes nothing."""
        return self._evaluate(slot, x, y)[1]

    def _moments(self, slot: int, x: FloatMatrix) -> list[FloatMatrix]:
        moments, _ = self._evaluate(slot, x, np.empty((0, self._op.y_dims)))
        return np.split(moments, 4, axis=1)

    def _evaluate(self, slot: int, x: FloatMatrix, y: FloatMatrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        x, y = self._points(slot, x, self._op.x_dims), self._points(slot, y, self._op.y_dims)
        moments = np.full((len(x), 4 * self._op.y_dims), np.nan)
        embedding = np.full((len(x), len(y)), np.nan)
        row, whole = self.slots.floats[slot], self.slots.ints[slot]
        kernel.evaluate(self._plan, self._op, row, whole, x, y, self._scratch, self._work, moments, embedding)
        return moments, embedding

    def _walk(
        self, at: int, slots: IntColumn, x: FloatMatrix, y: FloatMatrix, values: FloatMatrix, scores: FloatMatrix
    ) -> int:
        rows = self.slots
        return kernel.walk(
            at, self._plan, self._op, rows.floats, rows.ints, slots, x, y, self._scratch, self._work, values, scores
        )

    def _arm(self, slot: int) -> None:
        """Fix scales and widths, then learn from the warm-up's pairs; what is answered for them is not asked for."""
        row, whole = self.slots.floats[slot], self.slots.ints[slot]
        x, y = arm(self._plan, row, whole, self._op.x_dims, self._op.y_dims)
        n = len(x)
        values, scores = np.empty((n, Y_COLUMNS * self._op.y_dims + FIXED_COLUMNS)), np.empty((n, SCORES))
        self._walk(0, np.full(n, slot, dtype=np.int64), x, y, values, scores)

    def _points(self, slot: int, points: FloatMatrix, dims: int) -> FloatMatrix:
        n = len(points)
        return self.slots.check_samples(np.full(n, slot, dtype=np.int64), points, np.zeros(n, dtype=np.int64), dims)[1]


class CmeKind:
    """How models of the kind `cme` are built; a `contract.ModelKind`."""

    sides: Literal["pair", "single"] = "pair"
    same_space = False
    missing = False

    def build(self, shape: Shape, options: Mapping[str, object]) -> CmeModel:
        """An empty model.

        Args:
            shape: of its samples.
            options: `atoms`, `warmup`, `forgetting`, `coverage`, as `CmeModel` has them.

        Raises:
            ValueError: an option is unknown or out of range; says which.
        """
        return CmeModel(shape.x_names, shape.y_names, seed=shape.seed, **_options(options))


class OnlineCME:
    """What y follows from x, learned online: `CmeModel` with one slot.

    Args:
        x_dims: features of x.
        y_dims: features of y.
        atoms, warmup, forgetting, coverage: as for `CmeModel`.

    Example:
        >>> model = OnlineCME(1, 1)
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-2.0, 2.0, size=(1500, 1))
        >>> answers = model.update(x, np.sin(2.0 * x) + 0.1 * rng.normal(size=(1500, 1)))
        >>> mean, sd = model.predict([[1.0]])
        >>> bool(abs(mean[0, 0] - np.sin(2.0)) < 0.1 and 0.05 < sd[0, 0] < 0.2)
        True
    """

    def __init__(
        self,
        x_dims: int,
        y_dims: int,
        *,
        atoms: int = 48,
        warmup: int = 200,
        forgetting: float = 0.998,
        coverage: float = 0.9,
    ) -> None:
        names = tuple(tuple(f"{side}{j}" for j in range(dims)) for side, dims in (("x", x_dims), ("y", y_dims)))
        self._model = CmeModel(*names, atoms=atoms, warmup=warmup, forgetting=forgetting, coverage=coverage)
        self._dims = x_dims, y_dims
        self._slot = self._model.allocate(b"")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `Estimates.values`."""
        return tuple(column.name for column in self._model.columns)

    def update(self, x: ArrayLike, y: ArrayLike) -> Estimates:
        """Answer for pairs, then learn from them.

        Args:
            x: one sample, or float64[n, x_dims]; with one feature also float64[n].
            y: alike.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        left, right = (_points(values, d) for values, d in zip((x, y), self._dims, strict=True))
        n = len(right)
        return self._model.update(np.full(n, self._slot, dtype=np.int64), left, right, np.zeros(n, dtype=np.int64))

    def predict(self, x: ArrayLike) -> tuple[FloatMatrix, FloatMatrix]:
        """Conditional mean and standard deviation of y, float64[n, y_dims] each, NaN while warming up."""
        return self._model.predict(self._slot, _points(x, self._dims[0]))

    def interval(self, x: ArrayLike) -> tuple[FloatMatrix, FloatMatrix]:
        """Lower and upper limits of the next y, float64[n, y_dims] each: infinite where there are none, NaN in a
        warm-up.
        """
        return self._model.interval(self._slot, _points(x, self._dims[0]))

    def embedding(self, x: ArrayLike, y: ArrayLike) -> FloatMatrix:
        """(U phi(x_i))(y_j), float64[n, k]."""
        return self._model.embedding(self._slot, _points(x, self._dims[0]), _points(y, self._dims[1]))

    def snapshot(self) -> bytes:
        """All state, without pickle."""
        return self._model.snapshot(self._slot)

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot of a model with the same settings; ValueError when it does not fit."""
        self._model.restore(self._slot, snapshot)


def _points(values: ArrayLike, dims: int) -> NDArray[np.float64]:
    points = np.asarray(values, dtype=np.float64)
    return points.reshape(-1, dims) if points.ndim < 2 and points.size % dims == 0 else points


def _check(
    x_names: tuple[str, ...], y_names: tuple[str, ...], atoms: int, warmup: int, forgetting: float, coverage: float
) -> None:
    if not x_names or not y_names:
        raise ValueError("a conditional mean embedding needs at least one feature on each side")
    if atoms < 8:
        raise ValueError(f"atoms is {atoms}; it must be at least 8")
    if warmup < 20:
        raise ValueError(f"warmup is {warmup}; it must be at least 20 pairs")
    if not MIN_COVERAGE <= coverage <= MAX_COVERAGE:
        raise ValueError(f"coverage is {coverage}; it must be from {MIN_COVERAGE} to {MAX_COVERAGE}")
    check_forgetting(forgetting, atoms - atoms % 4)


def _lay_out(
    x_dims: int, y_dims: int, atoms: int, warmup: int, forgetting: float, coverage: float
) -> tuple[Plan, Operator]:
    judged, limits = judge.state_size(x_dims, y_dims), intervals.PER_VALUE * y_dims
    sizes = [2 * x_dims, 2 * y_dims, 2, 2 * y_dims, y_dims, judged, limits]
    at = np.concatenate(([0], np.cumsum(sizes))).tolist()
    op = lay_out(
        at[7],
        x_dims,
        y_dims,
        atoms - atoms % 4,
        gain=RLS,
        extra=2 * y_dims + USUAL_ROWS,
        eta=ETA,
        gamma=forgetting,
        ridge=RIDGE,
    )
    plan = Plan(
        warmup,
        (READY - 1) * warmup,
        ETA * NOVELTY,
        X_WIDTH,
        Y_WIDTH,
        0.5 * (1.0 - coverage),
        at_x_scale=at[0],
        at_y_scale=at[1],
        at_gains=at[2],
        at_base=at[3],
        at_misfit=at[4],
        at_judge=at[5],
        at_intervals=at[6],
        at_warm=at[7],
        floats=max(op.end, at[7] + warmup * (x_dims + y_dims)),
    )
    return plan, op


def _options(options: Mapping[str, object]) -> dict[str, Any]:
    unknown = sorted(options.keys() - {"atoms", "warmup", "forgetting", "coverage"})
    if unknown:
        raise ValueError(f"cme has no option {', '.join(unknown)}; it has atoms, warmup, forgetting, coverage")
    return dict(options)
