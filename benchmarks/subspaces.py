"""Streams near subspaces, for the bench and the tests of low-rank subspace clustering."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.contract import Estimates
from kstream_worker.models.olrsc import OlrscModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Union:
    """Samples of several random subspaces (section 6 of paper 002).

    Args:
        rng: draws the bases, then the samples.
        dims: sensors, p.
        count: subspaces.
        rank: dimensions of each.
        bases: float64[p, rank] each, in the place of random ones.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        dims: int = 100,
        count: int = 4,
        rank: int = 10,
        bases: Sequence[Floats] | None = None,
    ) -> None:
        self.rng = rng
        self.bases = [rng.normal(size=(dims, rank)) for _ in range(count)] if bases is None else list(bases)
        self.names = [f"s{i}" for i in range(dims)]

    def draw(self, n: int, corrupted: float, *, balanced: bool = False) -> tuple[Floats, Floats, Ints]:
        """Clean samples, the same with that share of entries corrupted, and the subspace of each."""
        count, rank = len(self.bases), self.bases[0].shape[1]
        label = self.rng.permutation(np.arange(n) % count) if balanced else self.rng.integers(0, count, n)
        causes = self.rng.normal(size=(n, rank))
        clean = np.einsum("npr,nr->np", np.array(self.bases)[label], causes)
        hit = self.rng.random(clean.shape) < corrupted
        return clean, clean + hit * self.rng.uniform(-2.0, 2.0, clean.shape), label

    def tilted(self, degrees: float) -> Union:
        """The same with every subspace tilted into directions of its own."""
        return Union(self.rng, bases=[_tilt(self.rng, basis, degrees) for basis in self.bases])


def _tilt(rng: np.random.Generator, basis: Floats, degrees: float) -> Floats:
    q, _ = np.linalg.qr(basis)
    other = rng.normal(size=basis.shape)
    other, _ = np.linalg.qr(other - q @ (q.T @ other))
    angle = np.deg2rad(degrees)
    tilted: Floats = (np.cos(angle) * q + np.sin(angle) * other) @ (q.T @ basis)
    return tilted


def pump(rng: np.random.Generator, n: int, *, noise: float, fault: str = "", at: int = 0) -> tuple[Floats, int]:
    """Eight sensors in units of their own that follow three causes; from sample `at` on one of them is broken.

    Args:
        rng: draws all.
        n: samples.
        noise: of each sensor, in its own standard deviations.
        fault: `offset` (by one standard deviation), `stuck`, `noise` (one standard deviation more), `decoupled`, or
            none.
        at: first broken sample.

    Returns:
        float64[n, 8], and which sensor.
    """
    unit = np.array([1.0, 1e5, 1e-3, 20.0, 3.0, 1.0, 50.0, 7.0])
    samples = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 8))
    spread = samples.std(axis=0)
    samples += noise * spread * rng.normal(size=samples.shape)
    broken = int(rng.integers(8))
    column, size = samples[at:, broken], spread[broken]
    if fault == "offset":
        column += size
    elif fault == "stuck":
        column[:] = column[0]
    elif fault == "noise":
        column += size * rng.normal(size=len(column))
    elif fault == "decoupled":
        column[:] = size * rng.normal(size=len(column))
    return unit * (samples + 5.0 * spread), broken


def walk(model: OlrscModel, samples: Floats) -> Estimates:
    """A new key of the model walks the samples."""
    n = len(samples)
    slot = model.allocate(b"key")
    return model.update(np.full(n, slot, dtype=np.int64), None, samples, np.zeros(n, dtype=np.int64))


def auc(before: Floats, after: Floats) -> float:
    """Share of pairs in which the later score is the larger, ties half."""
    sign = np.sign(after[:, None] - before[None])
    return float(0.5 + 0.5 * sign.mean())
