"""The models that the contract suite holds to `contract.Model`. To add one: a line in `MODELS`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from plugin_support import forecast_module

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.cme import CmeModel
from kstream_worker.models.contract import Column, Estimates, Features, Model, Shape
from kstream_worker.models.koopman import KoopmanModel
from kstream_worker.models.lagged import Lagged
from kstream_worker.models.olrsc import OlrscModel
from kstream_worker.models.ridge import RidgeModel
from kstream_worker.models.river import RiverModel
from kstream_worker.records import FloatMatrix, IntColumn

NAMES = ("a", "b")
DIMS = len(NAMES)

Float = NDArray[np.float64]


@dataclass(frozen=True)
class ModelCase:
    """One model under test.

    Attributes:
        make: a fresh one of samples with `DIMS` features and with this seed; short learning keeps the suite quick.
        other: a fresh one of another configuration, whose snapshots must be refused.
        x_dims: features of the input side; None for single samples.
        missing: whether y may hold NaN.
        length: samples of a stream; the model has scores before the end.
    """

    make: Callable[[int], Model]
    other: Callable[[], Model]
    x_dims: int | None = None
    missing: bool = False
    length: int = 150


class Linear(SlotBank):
    """Normalised least mean squares: y is expected at W (x, 1)."""

    columns = tuple(Column(f"expected.{name}") for name in NAMES)
    watched: tuple[str, ...] = ("misfit",)

    def __init__(self, x_dims: int, rate: float = 0.5, settled: int = 20) -> None:
        self._terms, self._rate, self._settled = x_dims + 1, rate, settled
        settings = {"x_dims": x_dims, "rate": rate, "settled": settled}
        rows = SlotArrays("linear", fingerprint_of(settings), 0, floats=DIMS * self._terms, ints=2)
        super().__init__(rows)

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        slots, x, y, times = self.slots.check_pairs(slots, x, y, times, DIMS, x_dims=self._terms - 1)
        answer = Estimates(np.empty((len(y), DIMS)), np.full((len(y), 1), math.nan))
        for i, slot in enumerate(slots.tolist()):
            inputs = [*x[i].tolist(), 1.0]
            row, seen = self.slots.floats[slot], self.slots.ints[slot]
            length, square = sum(value * value for value in inputs), 0.0
            for j in range(DIMS):
                weights = row[j * self._terms : (j + 1) * self._terms]
                expected = sum(w * value for w, value in zip(weights.tolist(), inputs, strict=True))
                off = float(y[i, j]) - expected
                square += off * off
                answer.values[i, j] = expected
                for k, value in enumerate(inputs):
                    weights[k] += self._rate * off * value / length
            if seen[1] >= self._settled:
                answer.scores[i] = math.sqrt(square)
            seen[1] += 1
        return answer

    def drivers(self, slot: int) -> Features:
        return ()


class Unwatched(Linear):
    """The same, which raises no alarms."""

    watched = ()

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        return Estimates(super().update(slots, x, y, times).values, np.empty((len(y), 0)))


def forecast(seed: int, memory: float = 20.0) -> Model:
    module = forecast_module()
    model: Model = module.Forecast(NAMES, seed, memory)
    return model


def cme(seed: int, forgetting: float = 0.95) -> CmeModel:
    return CmeModel(("u", "v", "w"), NAMES, atoms=16, warmup=20, forgetting=forgetting, seed=seed)


def koopman(seed: int, forgetting: float = 0.98) -> KoopmanModel:
    return KoopmanModel(NAMES, atoms=12, warmup=20, horizon=3, modes=2, forgetting=forgetting, seed=seed)


def subspaces(seed: int, lambda2: float = 0.2) -> Model:
    return OlrscModel(NAMES, lambda2=lambda2, warmup=40, settle=20, reservoir=30, seed=seed)


MODELS: dict[str, ModelCase] = {
    "cme": ModelCase(cme, lambda: cme(0, 0.96), x_dims=3),
    "koopman": ModelCase(koopman, lambda: koopman(0, 0.97), x_dims=DIMS),
    "forecast": ModelCase(forecast, lambda: forecast(0, 21.0)),
    "linear": ModelCase(lambda seed: Linear(3), lambda: Linear(3, 0.4), x_dims=3),
    "unwatched": ModelCase(lambda seed: Unwatched(3), lambda: Unwatched(3, 0.4), x_dims=3),
    "ridge": ModelCase(
        lambda seed: RidgeModel(("u", "v", "w"), NAMES, window=16, seed=seed),
        lambda: RidgeModel(("u", "v", "w"), NAMES, window=20),
        x_dims=3,
    ),
    "lag-1": ModelCase(
        lambda seed: Lagged(Linear(DIMS), DIMS, max_gap_ms=5000), lambda: Lagged(Linear(DIMS), DIMS, max_gap_ms=4999)
    ),
    "lag-3": ModelCase(lambda seed: Lagged(Linear(DIMS), DIMS, lag=3), lambda: Lagged(Linear(DIMS), DIMS, lag=2)),
}
MODELS["olrsc"] = ModelCase(subspaces, lambda: subspaces(0, 0.3), missing=True)
if find_spec("river"):  # an optional extra
    MODELS["river"] = ModelCase(
        lambda seed: RiverModel(Shape(("u", "v"), NAMES, seed), settle=30),
        lambda: RiverModel(Shape(("u", "v"), NAMES, 0), settle=31),
        x_dims=2,
    )
