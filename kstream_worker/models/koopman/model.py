"""Koopman operators of many keys in bounded memory: `KoopmanModel`, its kind, and `Koopman` for one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.cme.judge import SCORES
from kstream_worker.models.cme.layout import ATOMS, check_forgetting, make_work
from kstream_worker.models.contract import Column, Estimates, Features, Shape
from kstream_worker.models.koopman.arming import arm
from kstream_worker.models.koopman.kernel import walk
from kstream_worker.models.koopman.layout import (
    ARMED,
    COUNTS,
    FINISHED,
    FOUND,
    FULL,
    OPERATOR,
    PHASE,
    ROW,
    make_plan,
    make_scratch,
)
from kstream_worker.models.koopman.modes import refresh
from kstream_worker.models.koopman.reports import answer
from kstream_worker.models.spectrum import make_workspace
from kstream_worker.records import FloatMatrix, IntColumn

MOST_DRIVERS = 8
MODE_PARTS = ("modulus", "argument", "time_constant_s", "period_s", "re", "im")


class KoopmanModel(SlotBank):
    """Koopman operators of the dynamics of many keys (papers 000 and 003); a `contract.Model`.

    A pair is a state x and the state y that follows it. The operator U: phi(x) -> E[phi(y) | x], whose adjoint is the
    Koopman operator K, is held on at most `atoms` pairs in whitened coordinates and learned by recursive least squares
    with forgetting. Beside it the mean step of each feature from x to y is learned with the same gain; K applied to it
    gives forecasts over several steps. Eigenvalues, eigenfunctions and forecasts of more than one step are computed
    anew every 64 pairs.

    Forecasts are held against what comes only where states follow one another without a gap: where the x of each pair
    is the y of `lag` pairs before, and no interval is above three times the usual one.

    Args:
        names: of a state's features.
        atoms: most pairs in the dictionary, at least 8, in fours; memory and time grow with the square.
        warmup: pairs that fix scales, kernel width and sampling interval, at least 20; the operator then learns from
            them too.
        horizon: steps of the longer forecast, 1 to 1000; one step is always forecast.
        modes: eigenvalues published, a conjugate pair as one, 1 to atoms / 2.
        forgetting: weight of a pair relative to the next one, at most 1, which forgets nothing; the more atoms, the
            nearer to 1 it must be (.977 with 48).
        lag: pairs between a state as y and the same state as x, 1 to 1000.
        interval_s: seconds from x to y; 0: `lag` times the usual difference of event times.
        seed: part of the configuration that snapshots are held to; nothing here draws at random.

    Raises:
        ValueError: a setting is out of range; says which.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        atoms: int = 48,
        warmup: int = 200,
        horizon: int = 10,
        modes: int = 4,
        forgetting: float = 0.999,
        lag: int = 1,
        interval_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        _check(names, atoms, warmup, horizon, modes, forgetting, lag, interval_s)
        self.names = tuple(names)
        room, horizons = atoms - atoms % 4, (1, horizon) if horizon > 1 else (1,)
        self._plan = make_plan(
            len(names),
            atoms=room,
            warmup=warmup,
            modes=modes,
            horizons=horizons,
            gamma=forgetting,
            lag=lag,
            interval=interval_s,
        )
        self._scratch, self._work = make_scratch(self._plan, horizons), make_work(self._plan.op)
        self._spectrum = make_workspace(room)
        self._columns = _columns(self.names, modes, horizons)
        settings = {
            "row": ROW,
            "dims": len(names),
            "atoms": room,
            "warmup": warmup,
            "horizon": horizon,
            "modes": modes,
            "forgetting": forgetting,
            "lag": lag,
            "interval_s": interval_s,
            "seed": seed,
        }
        ints = COUNTS + len(horizons)
        super().__init__(SlotArrays("koopman", fingerprint_of(settings), seed, floats=self._plan.floats, ints=ints))

    @property
    def columns(self) -> tuple[Column, ...]:
        """`innovation`, `atoms`, `interval_s`, `spectral_change`; of each mode k `mode.<k>.modulus`, `.argument`
        (radians per step), `.time_constant_s`, `.period_s`, and its eigenfunction at y, `.re` and `.im`; of each
        horizon h `forecast.<h>.<name>`, `error.<h>.<name>` and `skill.<h>`.
        """
        return self._columns

    @property
    def watched(self) -> tuple[str, ...]:
        """`surprise` and `drift`."""
        return ("surprise", "drift")

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Answer for each pair with its key's operator, then let it learn; see `contract.Model`."""
        dims = len(self.names)
        slots, x, y, times = self.slots.check_pairs(slots, x, y, times, dims, x_dims=dims)
        values = np.full((len(slots), len(self._columns)), np.nan)
        scores = np.full((len(slots), SCORES), np.nan)
        at = 0
        while True:
            event, at = self._walk(at, slots, x, y, times, values, scores, replay=False)
            if event == FINISHED:
                return Estimates(values, scores)
            if event == FULL:
                self._arm(int(slots[at]))
            self._refresh(int(slots[at]))
            at += 1

    def drivers(self, slot: int) -> Features:
        """The features whose steps were lately worst foretold, beside their usual; see `contract.Model`."""
        plan, row = self._plan, self.slots.floats[slot]
        recent, usual = row[plan.at_misfit :][: plan.dims], row[plan.at_misfit + plan.dims :][: plan.dims]
        misfit = np.divide(recent, usual, out=np.zeros(plan.dims), where=usual > 0.0)
        if not misfit.any():
            return ()
        order = np.argsort(-misfit, kind="stable")[:MOST_DRIVERS]
        total = sum(misfit[order].tolist())
        return tuple((self.names[j], float(misfit[j]) / total) for j in order)

    def forecast(self, slot: int, x: FloatMatrix) -> FloatMatrix:
        """Mean states `horizon` steps after each of some states, with the key's latest operator; changes nothing.

        Args:
            slot: of the key.
            x: float64[n, d], in the units of the samples.

        Returns:
            float64[n, d]; NaN while the key warms up.
        """
        return self._ask(slot, x)[:, -self._plan.dims * 2 - 1 : -self._plan.dims - 1]

    def eigenvalues(self, slot: int) -> NDArray[np.complex128]:
        """Leading eigenvalues, complex128[<= modes], by falling modulus; of a conjugate pair the one with im > 0."""
        at, found = self._plan.at_values, int(self.slots.ints[slot, FOUND])
        parts = self.slots.floats[slot, at : at + 2 * found]
        return parts[0::2] + 1j * parts[1::2]

    def eigenfunctions(self, slot: int, x: FloatMatrix) -> NDArray[np.complex128]:
        """Their eigenfunctions at states, complex128[n, modes]; NaN where not known; changes nothing."""
        values = self._ask(slot, x)
        at = [self._columns.index(Column(f"mode.{k}.re")) for k in range(1, self._plan.modes + 1)]
        return np.asarray(values[:, at] + 1j * values[:, [i + 1 for i in at]])

    def _ask(self, slot: int, x: FloatMatrix) -> FloatMatrix:
        """What would be published at each of some states: of a copy of the row, as if it had just come."""
        n, dims = len(x), len(self.names)
        columns = np.zeros(n, dtype=np.int64)
        _, x, _ = self.slots.check_samples(columns + slot, x, columns, dims)
        values = np.full((n, len(self._columns)), np.nan)
        row, ints = self.slots.floats[slot], self.slots.ints[slot]
        if ints[PHASE] == ARMED:
            answer(self._plan, row, ints, x, self._scratch, self._work.powers, values)
        return values

    def _walk(
        self,
        at: int,
        slots: IntColumn,
        x: FloatMatrix,
        y: FloatMatrix,
        times: IntColumn,
        values: FloatMatrix,
        scores: FloatMatrix,
        *,
        replay: bool,
    ) -> tuple[int, int]:
        floats, ints = self.slots.floats, self.slots.ints
        return walk(at, self._plan, floats, ints, slots, x, y, times, replay, self._scratch, self._work, values, scores)

    def _arm(self, slot: int) -> None:
        """Fix scale and width, then have the key learn from the pairs of its warm-up."""
        plan, d = self._plan, self._plan.dims
        raw = np.empty((plan.warmup, 2 * d + 1))
        arm(plan, self.slots.floats[slot], self.slots.ints[slot], raw.reshape(-1), self._scratch.warm)
        x, y = raw[:, :d].copy(), raw[:, d : 2 * d].copy()
        slots, nowhere = np.full(plan.warmup, slot, dtype=np.int64), np.empty((0, 0))
        self._walk(0, slots, x, y, slots, nowhere, nowhere, replay=True)

    def _refresh(self, slot: int) -> None:
        """Modes and heads of the forecasts from the operator as it stands."""
        row, ints = self.slots.floats[slot], self.slots.ints[slot]
        m, before = int(ints[OPERATOR + ATOMS]), int(ints[FOUND])
        ints[FOUND] = refresh(self._plan, row, m, before, self._scratch, self._spectrum, self._work.powers)


class KoopmanKind:
    """How models of the kind `koopman` are built; a `contract.ModelKind`."""

    sides: Literal["pair", "single"] = "pair"
    same_space = True
    missing = False

    def build(self, shape: Shape, options: Mapping[str, object]) -> KoopmanModel:
        """An empty model.

        Args:
            shape: of its samples.
            options: those of `KoopmanModel`, with its seconds as `interval`.

        Raises:
            ValueError: an option is unknown or out of range; says which.
        """
        return KoopmanModel(shape.y_names, seed=shape.seed, **_options(options))


class Koopman:
    """The dynamics of one stream of states, learned online: `KoopmanModel` with one slot.

    Args:
        dims: features of a state.
        atoms, warmup, horizon, modes, forgetting, interval_s: as for `KoopmanModel`.

    Example:
        >>> model = Koopman(1, horizon=5)
        >>> z = np.sin(0.3 * np.arange(1500.0)) + 0.01 * np.random.default_rng(0).normal(size=1500)
        >>> answers = model.update(z[:-1], z[1:])
        >>> bool(abs(abs(model.eigenvalues()[0]) - 1.0) < 0.05)
        True
    """

    def __init__(
        self,
        dims: int,
        *,
        atoms: int = 48,
        warmup: int = 200,
        horizon: int = 10,
        modes: int = 4,
        forgetting: float = 0.999,
        interval_s: float = 0.0,
    ) -> None:
        self._model = KoopmanModel(
            [f"f{j}" for j in range(dims)],
            atoms=atoms,
            warmup=warmup,
            horizon=horizon,
            modes=modes,
            forgetting=forgetting,
            interval_s=interval_s,
        )
        self._slot = self._model.allocate(b"")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `Estimates.values`."""
        return tuple(column.name for column in self._model.columns)

    def update(self, x: ArrayLike, y: ArrayLike, times: ArrayLike | None = None) -> Estimates:
        """Answer for pairs of a state and its successor, then learn from them.

        Args:
            x: one state, or float64[n, dims]; with one feature also float64[n].
            y: alike.
            times: int64[n], of y in milliseconds; without them, nothing is said in seconds unless `interval_s` is set.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        left, right = self._points(x), self._points(y)
        n = len(right)
        column = np.zeros(n, dtype=np.int64) if times is None else np.asarray(times).reshape(-1)
        return self._model.update(np.full(n, self._slot, dtype=np.int64), left, right, column)

    def forecast(self, x: ArrayLike) -> FloatMatrix:
        """Mean states `horizon` steps after each of some states, float64[n, dims]; NaN while warming up."""
        return self._model.forecast(self._slot, self._points(x))

    def eigenvalues(self) -> NDArray[np.complex128]:
        """Leading eigenvalues of the Koopman operator; see `KoopmanModel.eigenvalues`."""
        return self._model.eigenvalues(self._slot)

    def eigenfunctions(self, x: ArrayLike) -> NDArray[np.complex128]:
        """Their eigenfunctions at states, complex128[n, modes]."""
        return self._model.eigenfunctions(self._slot, self._points(x))

    def snapshot(self) -> bytes:
        """All state, without pickle."""
        return self._model.snapshot(self._slot)

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot of a model with the same settings; ValueError when it does not fit."""
        self._model.restore(self._slot, snapshot)

    def _points(self, values: ArrayLike) -> NDArray[np.float64]:
        points, dims = np.asarray(values, dtype=np.float64), len(self._model.names)
        return points.reshape(-1, dims) if points.ndim < 2 and points.size % dims == 0 else points


def _columns(names: Sequence[str], modes: int, horizons: Sequence[int]) -> tuple[Column, ...]:
    columns = ["innovation", "atoms", "interval_s", "spectral_change"]
    columns += [f"mode.{k}.{part}" for k in range(1, modes + 1) for part in MODE_PARTS]
    for h in horizons:
        columns += [f"{what}.{h}.{name}" for what in ("forecast", "error") for name in names]
        columns.append(f"skill.{h}")
    return tuple(map(Column, columns))


def _check(
    names: Sequence[str],
    atoms: int,
    warmup: int,
    horizon: int,
    modes: int,
    forgetting: float,
    lag: int,
    interval_s: float,
) -> None:
    if not names:
        raise ValueError("a state needs at least one feature")
    if atoms < 8:
        raise ValueError(f"atoms is {atoms}; it must be at least 8")
    if warmup < 20:
        raise ValueError(f"warmup is {warmup}; it must be at least 20 pairs")
    if not 1 <= horizon <= 1000:
        raise ValueError(f"horizon is {horizon}; it must lie in 1..1000 steps")
    if not 1 <= modes <= atoms // 4 * 2:
        raise ValueError(f"modes is {modes}; it must lie in 1..{atoms // 4 * 2}, half of the atoms")
    check_forgetting(forgetting, atoms - atoms % 4)
    if not 1 <= lag <= 1000:
        raise ValueError(f"lag is {lag}; it must lie in 1..1000 pairs")
    if not 0.0 <= interval_s < np.inf:
        raise ValueError(f"interval_s is {interval_s}; it must be a number of seconds, or 0")


def _options(options: Mapping[str, object]) -> dict[str, Any]:
    known = ("atoms", "warmup", "horizon", "modes", "forgetting", "lag", "interval")
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ValueError(f"koopman has no option {', '.join(unknown)}; it has {', '.join(known)}")
    return {"interval_s" if name == "interval" else name: value for name, value in options.items()}
