"""A model of another package: each sample is expected at an exponentially weighted average of the key's former ones."""

import math

import numpy as np

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.models.contract import Column, Estimates

SAMPLES, SETTLED = 1, 50


class Forecast(SlotBank):
    watched = ("misfit",)

    def __init__(self, names: tuple[str, ...], seed: int, memory: float) -> None:
        if not 1.0 < memory <= 1e6:
            raise ValueError(f"memory is {memory}; it must lie above 1 and not above 1e6 samples")
        settings = fingerprint_of({"names": list(names), "memory": memory, "seed": seed})
        super().__init__(SlotArrays("forecast", settings, seed, floats=2 * len(names), ints=2))  # means, misfits
        self.columns = tuple(Column(f"expected.{name}") for name in names)
        self._names, self._rate = names, 1.0 / memory

    def update(self, slots, x, y, times) -> Estimates:
        slots, y, times = self.slots.check_samples(slots, y, times, len(self._names))
        answer = Estimates(np.full(y.shape, np.nan), np.full((len(y), 1), np.nan))
        for i, (slot, sample) in enumerate(zip(slots.tolist(), y.tolist(), strict=True)):
            row, state, d = self.slots.floats[slot], self.slots.ints[slot], len(sample)
            if state[SAMPLES] > 0:
                answer.values[i] = row[:d]
            square, rate = 0.0, max(self._rate, 1.0 / (state[SAMPLES] + 1))
            for j, value in enumerate(sample):
                off = value - row[j]
                square += off * off
                row[d + j] += rate * (off * off - row[d + j])
                row[j] += rate * off
            if state[SAMPLES] >= SETTLED:
                answer.scores[i] = math.sqrt(square)
            state[SAMPLES] += 1
        return answer

    def drivers(self, slot):
        misfits = self.slots.floats[slot, len(self._names) :].tolist()
        total = sum(misfits)
        shares = sorted(zip(self._names, misfits, strict=True), key=lambda pair: -pair[1])
        return tuple((name, misfit / total) for name, misfit in shares[:8]) if total > 0.0 else ()


class ForecastKind:
    sides, same_space, missing = "single", True, False

    def build(self, shape, options) -> Forecast:
        if set(options) - {"memory"}:
            raise ValueError(f"of the options {sorted(options)} there is `memory` alone")
        return Forecast(shape.y_names, shape.seed, float(options.get("memory", 100.0)))


KIND = ForecastKind()
