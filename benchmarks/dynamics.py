"""Dynamical systems with known behaviour, for benchmarks of models of transitions: pairs (x, y) of one step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Field = Callable[[np.ndarray], np.ndarray]


def duffing(state: np.ndarray) -> np.ndarray:
    """Time derivative of the unforced oscillator z'' = -z'/2 + z - z^3 at float64[n, 2]."""
    z, v = state[..., 0], state[..., 1]
    return np.stack((v, -0.5 * v + z - z**3), axis=-1)


def van_der_pol(state: np.ndarray) -> np.ndarray:
    """Time derivative of z'' = (1 - z^2) z' - z at float64[n, 2]."""
    z, v = state[..., 0], state[..., 1]
    return np.stack((v, (1.0 - z * z) * v - z), axis=-1)


def flow(field: Field, state: np.ndarray, seconds: float, step: float = 0.025) -> np.ndarray:
    """Runge and Kutta's fourth-order steps over `seconds`."""
    count = round(seconds / step)
    for _ in range(count):
        a = field(state)
        b = field(state + 0.5 * step * a)
        c = field(state + 0.5 * step * b)
        state = state + step / 6.0 * (a + 2.0 * b + 2.0 * c + field(state + step * c))
    return state


def duffing_pairs(trajectories: int, pairs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs 0.25 s apart of trajectories from [-2, 2]^2, one trajectory after the other."""
    states = [np.random.default_rng(seed).uniform(-2.0, 2.0, size=(trajectories, 2))]
    for _ in range(pairs):
        states.append(flow(duffing, states[-1], 0.25))
    path = np.stack(states, axis=1)
    return path[:, :-1].reshape(-1, 2), path[:, 1:].reshape(-1, 2)


def duffing_ends(points: np.ndarray) -> np.ndarray:
    """Position after 40 s, by then near -1 or 1: the basin of attraction."""
    return flow(duffing, points, 40.0, 0.05)[:, 0]


def logistic(n: int, streams: int, seed: int, *, noise: float = 0.02) -> np.ndarray:
    """x' = 3.9 x (1 - x) + noise, reflected into [0, 1]: float64[n, streams, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.2, 0.8, size=streams)
    path = np.empty((n, streams, 1))
    for t in range(-100, n):
        x = np.abs(3.9 * x * (1.0 - x) + noise * rng.normal(size=streams))
        x = np.where(x > 1.0, 2.0 - x, x)
        if t >= 0:
            path[t, :, 0] = x
    return path


def vector_autoregression(
    n: int, streams: int, seed: int, matrix: np.ndarray, *, noise: float = 1.0, square: float = 0.0
) -> np.ndarray:
    """x' = A x + noise of sd 1 or, where `square` > 0, of one that follows the former noise: float64[n, streams, d]."""
    rng = np.random.default_rng(seed)
    matrix = np.atleast_2d(matrix)
    x = np.zeros((streams, len(matrix)))
    e = np.zeros_like(x)
    path = np.empty((n, *x.shape))
    for t in range(-200, n):
        e = np.sqrt(1.0 - square + square * e * e) * rng.normal(size=x.shape)
        x = x @ matrix.T + noise * e
        if t >= 0:
            path[t] = x
    return path


def noisy_flow(n: int, streams: int, seed: int, field: Field, *, noise: float, seconds: float) -> np.ndarray:
    """States `seconds` apart with a random kick at each sample, kept within [-4, 4]: float64[n, streams, 2]."""
    rng = np.random.default_rng(seed)
    state = rng.normal(size=(streams, 2))
    path = np.empty((n, streams, 2))
    for t in range(-100, n):
        state = np.clip(flow(field, state, seconds, 0.05) + noise * rng.normal(size=state.shape), -4.0, 4.0)
        if t >= 0:
            path[t] = state
    return path


VAR2 = np.array([[0.6, 0.3], [-0.3, 0.6]])
