"""Models of the River library, as far as their state is a fixed set of numbers that can be taken out and put back.

River keeps a model's state in objects of Python, which only pickle would carry along. Of the models here it is known
which numbers it is; they lie in the key's row, and one object of River is lent to all keys, sample by sample. What
grows with the samples (trees, ensembles, neighbours) or draws at random has no such set and is refused by name. Bits
are those of River's own arithmetic: the same on one kind of machine, not promised to be the same on all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.contract import Column, Estimates, Features, Shape
from kstream_worker.records import FloatMatrix, IntColumn

KIND = "river"
MAX_OUTPUTS = 8
_SEEN = 1
_DECAY = 0.95  # of the errors that drivers are told from


class Held(NamedTuple):
    """How the state of one of River's classes is taken and put.

    Attributes:
        size: numbers for d input features.
        take: a list of them from an object, given the features' names.
        put: them into an object.
    """

    size: Callable[[int], int]
    take: Callable[[Any, tuple[str, ...]], list[float]]
    put: Callable[[Any, tuple[str, ...], list[float]], None]


def _take_scaler(scaler: Any, names: tuple[str, ...]) -> list[float]:
    return [float(table[name]) for table in (scaler.counts, scaler.means, scaler.vars) for name in names]


def _put_scaler(scaler: Any, names: tuple[str, ...], state: list[float]) -> None:
    d = len(names)
    for at, table in enumerate((scaler.counts, scaler.means, scaler.vars)):
        for name, value in zip(names, state[at * d : (at + 1) * d], strict=True):
            table[name] = value  # of a Counter, `update` would add


def _take_linear(model: Any, names: tuple[str, ...]) -> list[float]:
    weights = model.weights
    return [*(float(weights.get(name, 0.0)) for name in names), float(model.intercept), model.optimizer.n_iterations]


def _put_linear(model: Any, names: tuple[str, ...], state: list[float]) -> None:
    from river.utils import VectorDict

    model._weights = VectorDict(dict(zip(names, state, strict=False)))
    model.intercept, model.optimizer.n_iterations = state[-2], int(state[-1])


def _take_aggressive(model: Any, names: tuple[str, ...]) -> list[float]:
    return [*(float(model.weights[name]) for name in names), float(model.intercept)]


def _put_aggressive(model: Any, names: tuple[str, ...], state: list[float]) -> None:
    model.weights.update(zip(names, state, strict=False))
    model.intercept = state[-1]


_SCALER = Held(lambda d: 3 * d, _take_scaler, _put_scaler)
HELD = {
    "linear_model.LinearRegression": Held(lambda d: d + 2, _take_linear, _put_linear),
    "linear_model.PARegressor": Held(lambda d: d + 1, _take_aggressive, _put_aggressive),
}


class RiverModel(SlotBank):
    """One regressor of River for each output feature; implements `contract.Model`.

    Published: `expected.<name>` before the pair is learned. Watched: `error.<name>`, |y - expected|.

    Args:
        shape: of the pairs; at most 8 output features.
        model: name of a class in `HELD`.
        scaler: `standard` or `none`.
        settle: pairs before there are scores.
        lr, l2: of `LinearRegression`.
        aggressiveness, epsilon: of `PARegressor`.

    Raises:
        ValueError: a setting is out of range, River is not installed, or the model is none that can be used.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        model: str = "linear_model.LinearRegression",
        scaler: str = "standard",
        settle: int = 500,
        lr: float = 0.01,
        l2: float = 0.0,
        aggressiveness: float = 0.01,
        epsilon: float = 0.1,
    ) -> None:
        if len(shape.y_names) > MAX_OUTPUTS:
            raise ValueError(f"y binds {len(shape.y_names)} values; at most {MAX_OUTPUTS} errors can be watched")
        if settle < 1:
            raise ValueError(f"settle is {settle}; it must be at least 1")
        parameters = {"lr": lr, "l2": l2, "aggressiveness": aggressiveness, "epsilon": epsilon}
        self._regressor, self._scaler = _build(model, scaler, parameters)
        self._held, self._x_names, self._y_names = HELD[model], shape.x_names, shape.y_names
        d = len(self._x_names)
        self._scaled = 0 if self._scaler is None else _SCALER.size(d)
        self._size = self._held.size(d)
        self._settle = settle
        self.columns = tuple(Column(f"expected.{name}") for name in self._y_names)
        self.watched = tuple(f"error.{name}" for name in self._y_names)
        settings = {
            "x": len(self._x_names), "y": len(self._y_names), "model": model, "scaler": scaler, "settle": settle,
            "seed": shape.seed, **parameters,
        }  # fmt: skip
        floats = self._scaled + (self._size + 1) * len(self._y_names)
        super().__init__(SlotArrays(KIND, fingerprint_of(settings), shape.seed, floats=floats, ints=2))

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Predict each y from its x, then learn the pair; see `contract.Model.update`."""
        dims, x_dims = len(self._y_names), len(self._x_names)
        slots, x, y, times = self._slots.check_pairs(slots, x, y, times, dims, x_dims=x_dims)
        answer = Estimates(np.empty(y.shape), np.full(y.shape, math.nan))
        for i, (slot, inputs, outputs) in enumerate(zip(slots.tolist(), x.tolist(), y.tolist(), strict=True)):
            row, state = self._slots.floats[slot], self._slots.ints[slot]
            with np.errstate(all="ignore"):  # what overflows is dropped
                expected = self._learn(row, dict(zip(self._x_names, inputs, strict=True)), outputs)
            errors = [abs(value - guess) for value, guess in zip(outputs, expected, strict=True)]
            answer.values[i] = expected
            if state[_SEEN] >= self._settle:
                answer.scores[i] = errors
            for j, error in enumerate(errors):
                share = _DECAY * row[j - dims] + (1.0 - _DECAY) * error
                row[j - dims] = share if math.isfinite(share) else row[j - dims]
            state[_SEEN] += 1
        # a prediction that has grown beyond all numbers is none, and its error none either
        answer.values[~np.isfinite(answer.values)] = math.nan
        answer.scores[~np.isfinite(answer.scores).all(axis=1)] = math.nan
        return answer

    def drivers(self, slot: int) -> Features:
        """Outputs by their share in the latest errors."""
        errors = self._slots.floats[slot, -len(self._y_names) :].tolist()
        total = sum(errors)
        if not 0.0 < total < math.inf:
            return ()
        return tuple(
            sorted(
                ((name, error / total) for name, error in zip(self._y_names, errors, strict=True)),
                key=lambda share: -share[1],
            )
        )

    def _learn(self, row: np.ndarray, inputs: dict[str, float], outputs: list[float]) -> list[float]:
        """Predictions of one pair, which is then learned; what it would make other than finite stays as it was."""
        names, scaled = self._x_names, self._scaled
        if self._scaler is not None:
            held = row[:scaled].tolist()
            _SCALER.put(self._scaler, names, held)
            self._scaler.learn_one(inputs)
            held = _finite_or(_SCALER.take(self._scaler, names), held)
            _SCALER.put(self._scaler, names, held)
            row[:scaled] = held
            inputs = self._scaler.transform_one(inputs)
        expected = []
        for j, output in enumerate(outputs):
            part = slice(scaled + j * self._size, scaled + (j + 1) * self._size)
            held = row[part].tolist()
            self._held.put(self._regressor, names, held)
            expected.append(float(self._regressor.predict_one(inputs)))
            self._regressor.learn_one(inputs, output)
            row[part] = _finite_or(self._held.take(self._regressor, names), held)
        return expected


class RiverKind:
    """The kind `river`; implements `contract.ModelKind`."""

    sides: Literal["pair", "single"] = "pair"
    same_space = False
    missing = False

    def build(self, shape: Shape, options: Mapping[str, Any]) -> RiverModel:
        """An empty model; see `contract.ModelKind.build`."""
        return RiverModel(shape, **options)


def _finite_or(state: list[float], former: list[float]) -> list[float]:
    return state if all(map(math.isfinite, state)) else former


def _build(model: str, scaler: str, parameters: Mapping[str, float]) -> tuple[Any, Any]:
    try:
        import river.linear_model
        import river.optim
        import river.preprocessing
    except ImportError as error:
        raise ValueError(f"River cannot be imported ({error}): pip install 'kstream-worker[river]'") from error
    if model == "linear_model.LinearRegression":
        optimizer = river.optim.SGD(parameters["lr"])
        regressor = river.linear_model.LinearRegression(
            optimizer=optimizer, l2=parameters["l2"], intercept_lr=parameters["lr"]
        )
    elif model == "linear_model.PARegressor":
        regressor = river.linear_model.PARegressor(C=parameters["aggressiveness"], eps=parameters["epsilon"])
    else:
        raise ValueError(
            f"{model} of River cannot be used: of its state no fixed set of numbers is known that could be taken out "
            f"and put back without pickle; there are {', '.join(HELD)}"
        )
    return regressor, river.preprocessing.StandardScaler() if scaler == "standard" else None
