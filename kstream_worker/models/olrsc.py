"""Robust online low-rank subspaces in bounded memory (paper 002): a bank of many keys, and `OLRSC` for one.

Each key's sensors are scaled by a warm-up, and a basis D of at most d directions follows them (Algorithms 1-3 there).
Differences from the printed form, which is `models.paper.PaperOLRSC`:

- A and B fade, so that old samples lose their say; M does not (`lowrank.basis`).
- The inner problem is solved to a stated tolerance instead of by alternation (`lowrank.code`).
- A ridge on D beside the one on v, and D and V balanced when the warm-up ends, keep the strength of the nuclear norm
  (eq. 2.1) where the printed form lets it fall for ever: scores are stationary, and directions of mere noise vanish.
- Sensors are centred, and the centres follow the mean of what the subspace leaves over.
- Nothing per sample is kept but a bounded reservoir, whose clusters give the subspace labels (`lowrank.cluster`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kstream_worker.models import olrsc_kernel
from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.contract import Column, Estimates, Features, Shape
from kstream_worker.models.lowrank.cluster import MOST
from kstream_worker.models.lowrank.layout import EXTRA, INTS, SUMS, Plan, make_scratch
from kstream_worker.records import FloatMatrix, IntColumn

KIND = "olrsc"
ROW = 1  # of what the numbers of a row mean: snapshots of other rows are refused
LAMBDA1 = 1.0
MOST_RANK = 40  # of the default
MOST_SHRINKAGE = 1e6  # far beyond the longest sample; its square must not overflow
PERIOD = 500  # samples between two clusterings
DRIVERS = 8  # sensors named at most
WATCHED = ("corruption", "corrupted_share")


class Settings(NamedTuple):
    """What shapes a model, defaults filled in; see `OlrscModel`."""

    rank: int
    lambda2: float
    forgetting: float
    shrinkage: float
    warmup: int
    settle: int
    subspaces: int  # 0: as many as are found
    reservoir: int  # 0 where there is one subspace alone


class OlrscModel(SlotBank):
    """Low-rank subspaces of many keys, one slot each; a `models.contract.Model` of single samples.

    Lengths are in robust standard deviations of each sensor over its warm-up.

    Args:
        names: of the sensors, at least 2.
        rank: d, directions of the basis, an upper bound of the clean data's rank, below the number of sensors; by
            default two fifths of them, at most 40. The nearer to the truth, the surer a broken sensor is told.
        lambda2: weight of |e|_1: a sensor counts as corrupted where it is farther than that from what the others say.
            About twice the sensors' noise does well.
        forgetting: factor per sample by which the past fades, in (0, 1]; 1 forgets nothing, as the paper.
        shrinkage: directions weaker than that are left out, at least 0; 0 as the paper.
        warmup: samples that fix the scales and the first basis, 20 to 10,000.
        settle: samples behind the warm-up without scores, while the basis still improves.
        subspaces: clusters that samples are told apart by, 1 to 8; None: as many as are found.
        reservoir: cleaned samples kept to find them, 20 to 1,000; by default 10 per direction, from 100 to 400.
        seed: of all random draws.

    Raises:
        ValueError: a setting is out of range; says which.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        rank: int | None = None,
        lambda2: float = 0.2,
        forgetting: float = 0.998,
        shrinkage: float = 0.05,
        warmup: int = 200,
        settle: int = 300,
        subspaces: int | None = None,
        reservoir: int | None = None,
        seed: int = 0,
    ) -> None:
        self.names = tuple(names)
        dims = len(self.names)
        if rank is None:
            rank = max(1, min(2 * dims // 5, MOST_RANK))
        if reservoir is None:
            reservoir = max(100, min(10 * rank, 400))
        _check(dims, rank, lambda2, forgetting, shrinkage, warmup, settle, subspaces, reservoir)
        kept = 0 if subspaces == 1 else reservoir
        settings = Settings(rank, lambda2, forgetting, shrinkage, warmup, settle, subspaces or 0, kept)
        self._plan = _lay_out(dims, settings)
        self._scratch = make_scratch(self._plan)
        self._room = olrsc_kernel.make_room(self._plan)
        self._columns = _columns(self.names)
        shape = {"row": ROW, "names": list(self.names), "seed": seed, **settings._asdict()}
        super().__init__(SlotArrays(KIND, fingerprint_of(shape), seed, floats=self._plan.floats, ints=INTS))

    @property
    def columns(self) -> tuple[Column, ...]:
        """`cleaned.<sensor>`, `corruption.<sensor>`, `subspace`, `expressed_variance`, `corrupted_share`,
        `corruption`.
        """
        return self._columns

    @property
    def watched(self) -> tuple[str, ...]:
        """The two scores of a sample."""
        return WATCHED

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Estimate for each sample with its key's basis, then let it improve that basis; see `contract.Model`.

        Args:
            slots: int64[n].
            x: None: this kind takes single samples.
            y: float64[n, p], in the sensors' units, NaN where missing.
            times: int64[n].

        Raises:
            ValueError: shapes do not fit, x is given, or a value is infinite; nothing has changed then.
        """
        if x is not None:
            raise ValueError("x is given: low-rank subspaces take single samples, y")
        p = self._plan.dims
        slots, y, _ = self._slots.check_samples(slots, y, times, p, missing=True)
        n = len(slots)
        values, scores = np.full((n, 2 * p + EXTRA), np.nan), np.full((n, len(WATCHED)), np.nan)
        floats, ints = self._slots.floats, self._slots.ints
        at = 0
        while True:
            at = olrsc_kernel.walk(at, self._plan, floats, ints, slots, y, self._scratch, values, scores)
            if at == n:
                return Estimates(values, scores)
            slot = slots[at]
            olrsc_kernel.arrange(self._plan, floats[slot], ints[slot], self._scratch, self._room)
            at += 1

    def drivers(self, slot: int) -> Features:
        """The sensors whose recent corruption exceeds their usual one most; empty where none does."""
        plan, row = self._plan, self._slots.floats[slot]
        excess = [max(0.0, float(row[plan.at_recent + i]) - float(row[plan.at_usual + i])) for i in range(plan.dims)]
        order = sorted(range(plan.dims), key=lambda i: (-excess[i], i))[:DRIVERS]
        named = [i for i in order if excess[i] > 0.0]
        total = sum(excess[i] for i in named)
        return tuple((self.names[i], excess[i] / total) for i in named)

    def basis(self, slot: int) -> NDArray[np.float64]:
        """float64[p, d], D of a key in scaled units, zeros while it warms up; a copy."""
        plan = self._plan
        flat = self._slots.floats[slot, plan.at_basis : plan.at_basis + plan.rank * plan.dims]
        columns: NDArray[np.float64] = np.array(flat, dtype=np.float64).reshape(plan.rank, plan.dims)
        return columns.T.copy()


class OlrscKind:
    """Builds `OlrscModel` from settings; a `models.contract.ModelKind`."""

    sides: Literal["pair", "single"] = "single"
    same_space = False
    missing = True

    def build(self, shape: Shape, options: Mapping[str, object]) -> OlrscModel:
        """An empty model; options are the keyword arguments of `OlrscModel`, without `seed`."""
        for name in options:
            if name not in Settings._fields:
                raise ValueError(f"olrsc has no option {name!r}; it knows {', '.join(Settings._fields)}")
        settings: dict[str, Any] = dict(options)
        return OlrscModel(shape.y_names, seed=shape.seed, **settings)


class OLRSC:
    """Low-rank subspaces of one stream: `OlrscModel` with one slot.

    Args:
        names: of the sensors, or their number.
        settings: as for `OlrscModel`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> load = rng.normal(size=(1000, 1)) * [2.0, 30.0, 0.1, 5.0]
        >>> samples = load + [20.0, 400.0, 1.0, 50.0] + rng.normal(size=(1000, 4)) * [0.1, 1.5, 0.005, 0.25]
        >>> samples[990:, 2] += 0.2
        >>> model = OLRSC(["temperature", "pressure", "vibration", "current"], rank=1)
        >>> estimates = model.update(samples)
        >>> model.drivers()[0][0]
        'vibration'
    """

    def __init__(self, names: Sequence[str] | int, **settings: Any) -> None:
        if isinstance(names, int):
            names = [f"s{i}" for i in range(names)]
        self._bank = OlrscModel(names, **settings)
        self._slot = self._bank.allocate(b"")
        self.columns = tuple(column.name for column in self._bank.columns)

    def update(self, samples: ArrayLike) -> Estimates:
        """Estimate, then learn from samples in order.

        Args:
            samples: float64[n, p] or one sample float64[p]; NaN where missing.

        Raises:
            ValueError: the shape does not fit, or a value is infinite; nothing has changed then.
        """
        y = np.atleast_2d(np.asarray(samples, dtype=np.float64))
        slots = np.full(len(y), self._slot, dtype=np.int64)
        return self._bank.update(slots, None, y, np.zeros(len(y), dtype=np.int64))

    def drivers(self) -> Features:
        """(sensor, weight) of the largest recent corruption."""
        return self._bank.drivers(self._slot)

    @property
    def basis(self) -> NDArray[np.float64]:
        """float64[p, d], D in scaled units."""
        return self._bank.basis(self._slot)

    def snapshot(self) -> bytes:
        """All state, without pickle."""
        return self._bank.snapshot(self._slot)

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot of a model with the same settings; ValueError when it does not fit."""
        self._bank.restore(self._slot, snapshot)


def _columns(names: Sequence[str]) -> tuple[Column, ...]:
    own = [f"cleaned.{name}" for name in names] + [f"corruption.{name}" for name in names]
    return tuple(map(Column, [*own, "subspace", "expressed_variance", "corrupted_share", "corruption"]))


def _check(
    dims: int,
    rank: int,
    lambda2: float,
    forgetting: float,
    shrinkage: float,
    warmup: int,
    settle: int,
    subspaces: int | None,
    reservoir: int,
) -> None:
    if dims < 2:
        raise ValueError(f"a sample has {dims} numbers; low-rank subspaces need at least 2")
    if not 1 <= rank < dims:
        raise ValueError(f"rank is {rank}; it must be at least 1 and below the {dims} numbers of a sample")
    if not 0.0 < lambda2 < math.inf:
        raise ValueError(f"lambda2 is {lambda2}; it must be positive")
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting is {forgetting}; it must be in (0, 1]")
    if not 0.0 <= shrinkage <= MOST_SHRINKAGE:
        raise ValueError(f"shrinkage is {shrinkage}; it must lie in 0..{MOST_SHRINKAGE:g}")
    if not 20 <= warmup <= 10_000:
        raise ValueError(f"warmup is {warmup}; it must lie in 20..10000 samples")
    if settle < 0:
        raise ValueError(f"settle is {settle}; it must not be negative")
    if subspaces is not None and not 1 <= subspaces <= MOST:
        raise ValueError(f"subspaces is {subspaces}; it must lie in 1..{MOST}, or be left out")
    if not 20 <= reservoir <= 1000:
        raise ValueError(f"reservoir is {reservoir}; it must lie in 20..1000 samples")


def _lay_out(dims: int, settings: Settings) -> Plan:
    rank, reservoir, warmup = settings.rank, settings.reservoir, settings.warmup
    basis = rank * dims
    pool = 2 * basis if reservoir else 0
    sizes = [dims, dims, dims, dims, SUMS, basis, rank * rank, basis, basis, pool, max(warmup, reservoir) * dims]
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    return Plan(
        dims,
        rank,
        warmup,
        settings.settle,
        settings.subspaces,
        reservoir,
        PERIOD,
        LAMBDA1,
        settings.lambda2,
        settings.forgetting,
        settings.shrinkage,
        *starts,
    )
