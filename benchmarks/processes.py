"""Streams without a change, serially dependent in known ways, for benches of the rank detector.

Every process gives `keys` independent series of `d` independent features with a marginal standard deviation of about
1 (a random walk: increments of 1; totals: of 4.5), chunk by chunk: `[n, keys, d]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Cube = NDArray[np.float64]

MINUTE = 60_000  # milliseconds
DAY = 1_440 * MINUTE
STEP = 5 * MINUTE  # between samples of all processes: 288 a day


@dataclass(frozen=True)
class Process:
    """A recursion: `start(rng, keys, d)` gives its state, `advance(rng, state, first, n)` the next n samples."""

    start: Callable[[np.random.Generator, int, int], Cube]
    advance: Callable[[np.random.Generator, Cube, int, int], Cube]
    period: str = "none"

    def chunks(self, seed: int, keys: int, d: int, length: int, chunk: int = 1_000) -> Iterator[tuple[int, Cube]]:
        """(number of the first sample, samples) until `length` samples are out."""
        rng = np.random.default_rng(seed)
        state = self.start(rng, keys, d)
        for at in range(0, length, chunk):
            yield at, self.advance(rng, state, at, min(chunk, length - at))


def _zeros(rows: int) -> Callable[[np.random.Generator, int, int], Cube]:
    return lambda _, keys, d: np.zeros((rows, keys, d))


def independent(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
    """Standard normal samples."""
    return rng.standard_normal((n, *state.shape[1:]))


def autoregression(phi: tuple[float, ...], degrees: float = math.inf) -> Process:
    """An AR(p) with normal or Student innovations; starts in the course of a burn-in of 500."""
    sd = _ar_sd(phi)

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        shape = (n, *state.shape[1:])
        e = rng.standard_normal(shape) if math.isinf(degrees) else rng.standard_t(degrees, shape)
        for t in range(n):
            e[t] += np.tensordot(np.array(phi), state, axes=1)
            state[1:] = state[:-1].copy()
            state[0] = e[t]
        return e / sd

    def start(rng: np.random.Generator, keys: int, d: int) -> Cube:
        state = np.zeros((len(phi), keys, d))
        advance(rng, state, 0, 500)
        return state

    return Process(start, advance)


def _ar_sd(phi: tuple[float, ...]) -> float:
    """Standard deviation of the process for innovations of 1."""
    weights = np.zeros(5_000)
    weights[0] = 1.0
    for t in range(1, len(weights)):
        weights[t] = sum(c * weights[t - 1 - k] for k, c in enumerate(phi) if t - 1 - k >= 0)
    return float(np.sqrt((weights**2).sum()))


def moving_average(theta: float) -> Process:
    """z_t = e_t + theta e_{t-1}."""

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        e = np.concatenate([state, rng.standard_normal((n, *state.shape[1:]))])
        state[0] = e[-1]
        return (e[1:] + theta * e[:-1]) / math.hypot(1.0, theta)

    return Process(_zeros(1), advance)


def rounded(inner: Process, unit: float) -> Process:
    """A process rounded to multiples of a unit."""
    return Process(inner.start, lambda *a: np.round(inner.advance(*a) / unit) * unit)


def held(probability: float) -> Process:
    """Independent samples, each with a probability the same as its predecessor (all features together)."""

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        z = rng.standard_normal((n, *state.shape[1:]))
        stay = rng.random((n, state.shape[1])) < probability
        for t in range(n):
            z[t] = np.where(stay[t][:, None], state[0], z[t])
            state[0] = z[t]
        return z

    return Process(_zeros(1), advance)


def seasonal(inner: Process, weekly: float, period: str) -> Process:
    """A process with a daily shape of three harmonics (standard deviation 1) and a weekly sine."""

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        turn = 2.0 * math.pi * (first + np.arange(n)) * STEP / DAY
        shape = 1.2 * np.sin(turn) + 0.6 * np.sin(2.0 * turn + 1.0) + 0.4 * np.cos(3.0 * turn)
        return inner.advance(rng, state, first, n) + (shape + weekly * np.sin(turn / 7.0))[:, None, None]

    return Process(inner.start, advance, period)


def garch(alpha: float, beta: float) -> Process:
    """GARCH(1, 1) with variance 1."""

    def start(rng: np.random.Generator, keys: int, d: int) -> Cube:
        state = np.ones((1, keys, d))
        advance(rng, state, 0, 500)
        return state

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        z = rng.standard_normal((n, *state.shape[1:]))
        for t in range(n):
            z[t] *= np.sqrt(state[0])
            state[0] = 1.0 - alpha - beta + alpha * z[t] ** 2 + beta * state[0]
        return z

    return Process(start, advance)


def random_walk() -> Process:
    """Sums of independent steps."""

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        z = state + np.cumsum(rng.standard_normal((n, *state.shape[1:])), axis=0)
        state[0] = z[-1]
        return z

    return Process(_zeros(1), advance)


def trend(inner: Process, slope: float) -> Process:
    """A process that rises by `slope` a sample, for ever."""

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        return inner.advance(rng, state, first, n) + slope * (first + np.arange(n))[:, None, None]

    return Process(inner.start, advance)


def total(mean: float) -> Process:
    """Counts added up: increments are Poisson."""

    def advance(rng: np.random.Generator, state: Cube, first: int, n: int) -> Cube:
        z = state + np.cumsum(rng.poisson(mean, (n, *state.shape[1:])), axis=0)
        state[0] = z[-1]
        return z

    return Process(_zeros(1), advance)


PROCESSES: dict[str, Process] = {
    "iid": Process(_zeros(1), independent),
    **{f"AR {c}".replace("0.", "."): autoregression((c,)) for c in (0.1, 0.3, 0.6, 0.9, 0.98)},
    "MA .8": moving_average(0.8),
    "AR(2) oscillator": autoregression((1.5, -0.8)),
    "AR .8, t3": autoregression((0.8,), 3.0),
    "AR .6 rounded": rounded(autoregression((0.6,)), 0.1),
    "held .5": held(0.5),
    "GARCH(.1, .85)": garch(0.1, 0.85),
    "random walk": random_walk(),
    "trend .2": trend(Process(_zeros(1), independent), 0.2),
    "total of counts": total(20.0),
    "daily + weekly, given": seasonal(autoregression((0.6,)), 1.0, "given"),
    "daily + weekly, auto": seasonal(autoregression((0.6,)), 1.0, "auto"),
    "daily, auto": seasonal(autoregression((0.6,)), 0.0, "auto"),
}
