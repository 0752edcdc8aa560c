"""Windowed kernel ridge of y on x with a certificate of every solve: a bank of many keys, and `Ridge` for one.

The window's system (K + tau I) b = y is kept solved by a rank-2 update a pair; the residual is recomputed after each,
and bounds how far the coefficients are from the exact ones (paper 001). The bounds are of the solve alone: whether the
prediction is any good is told by its error and by `novelty`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.contract import Column, Estimates, Features, Shape
from kstream_worker.models.ridge.certificate import certify
from kstream_worker.models.ridge.fit import arm
from kstream_worker.models.ridge.kernel import EACH, HEAD, walk
from kstream_worker.models.ridge.layout import ARMED, INTS, PHASE, STATUSES, lay_out, make_scratch
from kstream_worker.records import FloatMatrix, IntColumn

WINDOW = 128
TOLERANCE = 1e-6
MOST_WATCHED = 8
_ROW = 1  # of what the numbers of a row mean: snapshots of other rows are refused
_EACH = (
    "prediction",
    "error",
    "solve_residual",
    "solve_coefficient_bound",
    "solve_fit_bound",
    "solve_prediction_bound",
)


class RidgeModel(SlotBank):
    """Kernel ridge over a window, for many keys; implements `contract.Model`.

    A key warms up until its window is full. Scales (median, interquartile range), kernel width and, unless given, tau
    are then fixed: width and tau by the least leave-one-out error. From then on each pair is predicted, and then takes
    the place of the oldest. A key of which more than half of a window's pairs lay beyond 6 scales warms up again.

    Published, for each output `<y>` in its units, all made before the pair is learned:
        prediction.<y>, error.<y>: of y from x, and y less that.
        solve_residual.<y>: at least |r|_2 of the coefficients b that predict.
        solve_coefficient_bound.<y>: |b - a|_2, a the exact solution.
        solve_fit_bound.<y>: |K b - K a|_2.
        solve_prediction_bound.<y>: |prediction - exact solution's prediction|.
    And `solve_status` (`certified`: every residual is within the tolerance; `uncertified`: the system is not positive
    definite in float64; `budget-exhausted`: the tolerance was not reached), `tau`, and `novelty`: the share of the
    kernel's variance at x that the window does not explain, 0 (well known) to 1 (nothing like it).

    Watched, e being an output's error divided by its scale and by sqrt(novelty + tau), what a Gaussian process expects
    of it: of up to 3 outputs `above.<y>` = e, `below.<y>` = -e and `error`, the root of the mean of their squares; of
    up to 8 `error.<y>` = |e|; of more `error`.

    Args:
        x_names: of the inputs, at least one.
        y_names: of the outputs, at least one; inputs and outputs need have nothing in common.
        window: pairs, from 8, in fours (50 means 48). A key takes about 8 window^2 bytes.
        tau: the ridge, above 0, of a kernel with k(x, x) = 1 and scaled y; None to choose in the warm-up.
        tolerance: eta, what |y - (K + tau I) b|_2 is to be below, in scales of y, at least 0.
        seed: part of the configuration that snapshots are held to; nothing here draws at random.
        capacity: slots at the start; the bank grows.

    Raises:
        ValueError: an argument is out of its range; says which.
    """

    def __init__(
        self,
        x_names: Sequence[str],
        y_names: Sequence[str],
        *,
        window: int = WINDOW,
        tau: float | None = None,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        capacity: int = 16,
    ) -> None:
        _check(x_names, y_names, window, tau, tolerance)
        self._x_names, self._y_names = tuple(x_names), tuple(y_names)
        self._plan = lay_out(len(x_names), len(y_names), window - window % 4, tau or 0.0, tolerance)
        self._scratch = make_scratch(self._plan)
        settings = {
            "row": _ROW,
            "dx": len(x_names),
            "dy": len(y_names),
            "window": self._plan.room,
            "tau": tau,
            "tolerance": tolerance,
            "seed": seed,
        }
        super().__init__(
            SlotArrays("ridge", fingerprint_of(settings), seed, floats=self._plan.floats, ints=INTS, capacity=capacity)
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is published of each pair."""
        head = Column("solve_status", STATUSES), Column("tau"), Column("novelty")
        return head + tuple(Column(f"{name}.{y}") for y in self._y_names for name in _EACH)

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of the scores: errors to either side and all in one; of more outputs magnitudes; then one for all."""
        if len(self._y_names) > MOST_WATCHED:
            return ("error",)
        if 2 * len(self._y_names) + 1 > MOST_WATCHED:
            return tuple(f"error.{y}" for y in self._y_names)
        return (*(f"{side}.{y}" for y in self._y_names for side in ("above", "below")), "error")

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Answer for each pair, then learn from it; see `contract.Model`."""
        slots, x, y, _ = self._slots.check_pairs(slots, x, y, times, self._plan.dy, x_dims=self._plan.dx)
        values = np.full((len(slots), HEAD + EACH * self._plan.dy), np.nan)
        scores = np.full((len(slots), len(self.watched)), np.nan)
        plan, floats, ints, scratch = self._plan, self._slots.floats, self._slots.ints, self._scratch
        at = -1
        while (at := walk(at + 1, plan, floats, ints, slots, x, y, scratch, values, scores)) < len(slots):
            row, whole = floats[slots[at]], ints[slots[at]]
            arm(plan, row, whole, scratch)
            certify(plan, row, whole, True, scratch)
        return Estimates(values, scores)

    def drivers(self, slot: int) -> Features:
        """(output, weight) by the share of the faded squares of standardised errors, about the last 20 pairs."""
        plan = self._plan
        misfit = self._slots.floats[slot, plan.at_misfit : plan.at_misfit + plan.dy].tolist()
        if self._slots.ints[slot, PHASE] != ARMED or not any(misfit):
            return ()
        largest = sorted(range(plan.dy), key=lambda o: (-misfit[o], o))[:MOST_WATCHED]
        whole = sum(misfit[o] for o in largest)
        return tuple((self._y_names[o], misfit[o] / whole) for o in largest)


class RidgeKind:
    """Builds `RidgeModel`s of configured options; a `contract.ModelKind`."""

    sides: Literal["pair", "single"] = "pair"
    same_space = False
    missing = False

    def build(self, shape: Shape, options: Mapping[str, object]) -> RidgeModel:
        """A model of this shape.

        Args:
            shape: names of both sides.
            options: `window`, `tau`, `tolerance`; each may be left out.

        Raises:
            ValueError: an option is unknown, of the wrong type or out of range; says which.
        """
        unknown = sorted(set(options) - {"window", "tau", "tolerance"})
        if unknown:
            raise ValueError(f"ridge knows no option {unknown[0]!r}; it takes window, tau and tolerance")
        window, tau = options.get("window", WINDOW), options.get("tau")
        tolerance = options.get("tolerance", TOLERANCE)
        if not isinstance(window, int) or isinstance(window, bool):
            raise ValueError(f"window is {window!r}; it must be a whole number")  # noqa: TRY004
        if tau is not None and not isinstance(tau, (int, float)):
            raise ValueError(f"tau is {tau!r}; it must be a number, or left out")
        if not isinstance(tolerance, (int, float)):
            raise ValueError(f"tolerance is {tolerance!r}; it must be a number")  # noqa: TRY004
        return RidgeModel(
            shape.x_names,
            shape.y_names,
            window=window,
            tau=None if tau is None else float(tau),
            tolerance=float(tolerance),
            seed=shape.seed,
        )


class Ridge:
    """Windowed kernel ridge of one stream of pairs: `RidgeModel` with one slot.

    Args:
        dx: inputs.
        dy: outputs.
        window, tau, tolerance: as for `RidgeModel`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-2.0, 2.0, size=(400, 1))
        >>> model = Ridge(1, 1)
        >>> answers = model.update(x, np.sin(x) + 0.1 * rng.normal(size=x.shape))
        >>> error = model.column(answers, "error.y0")[200:]
        >>> bool(np.sqrt(np.square(error).mean()) < 0.12)
        True
    """

    def __init__(
        self, dx: int, dy: int, *, window: int = WINDOW, tau: float | None = None, tolerance: float = TOLERANCE
    ) -> None:
        self._shape = dx, dy
        self._model = RidgeModel(
            [f"x{i}" for i in range(dx)],
            [f"y{i}" for i in range(dy)],
            window=window,
            tau=tau,
            tolerance=tolerance,
            capacity=1,
        )
        self._slot = self._model.allocate(b"")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Of `Estimates.values`; outputs are called y0, y1, ..."""
        return self._model.columns

    def column(self, answers: Estimates, name: str) -> NDArray[np.float64]:
        """float64[n], one column by its name.

        Raises:
            KeyError: there is no such column.
        """
        names = [column.name for column in self.columns]
        if name not in names:
            raise KeyError(f"{name}: there are {', '.join(names)}")
        return answers.values[:, names.index(name)]

    def update(self, x: ArrayLike, y: ArrayLike) -> Estimates:
        """Predict y from x, then learn the pairs.

        Args:
            x: float64[n, dx]; with dx = 1 also float64[n].
            y: float64[n, dy], alike.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        inputs, outputs = (_points(v, d) for v, d in zip((x, y), self._shape, strict=True))
        n = len(outputs)
        return self._model.update(np.full(n, self._slot), inputs, outputs, np.zeros(n, dtype=np.int64))

    def snapshot(self) -> bytes:
        """All state, without pickle."""
        return self._model.snapshot(self._slot)

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot of a model with the same settings; ValueError when it does not fit."""
        self._model.restore(self._slot, snapshot)


def _points(values: ArrayLike, d: int) -> NDArray[np.float64]:
    points = np.asarray(values, dtype=np.float64)
    return points.reshape(-1, d) if points.ndim < 2 and points.size % d == 0 else points


def _check(x_names: Sequence[str], y_names: Sequence[str], window: int, tau: float | None, tolerance: float) -> None:
    if not x_names or not y_names:
        raise ValueError("ridge needs at least one input and one output")
    if not 8 <= window <= 2000:
        raise ValueError(f"window is {window}; it must be from 8 to 2000 pairs")
    if tau is not None and not 0.0 < tau < np.inf:
        raise ValueError(f"tau is {tau}; it must be finite and above 0, or left out to be chosen")
    if not 0.0 <= tolerance < np.inf:
        raise ValueError(f"tolerance is {tolerance}; it must be finite and at least 0")
