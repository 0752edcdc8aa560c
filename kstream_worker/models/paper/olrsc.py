"""Online low-rank subspace clustering as printed in paper 002: Algorithms 1-3, missing entries after its Appendix E.

Corrections of the print, and choices where it is silent:

- Appendix E writes |v_Omega|, lambda and m for |v| (all d entries count), lambda_1 and c.
- Appendix E with c to infinity (eq. 4.1) has e = 0 on observed entries (`sparse=False`); with `sparse=True` they keep
  the l1 term of eq. 2.3. On unobserved entries e is free in both, so that (z - e) = D v there.
- Algorithm 2 divides by |e'|, which may be 0; here the changes are compared with epsilon times the norms.
- The atom y_t is the sample z_t, with zeros where it is missing.
- The first basis D_0 has entries 0.1 N(0, 1); its scale decides the result, and the paper leaves it open.
- In later epochs the former contributions of a sample leave M, A and B before the new ones join.
- The expressed variance lies in [0, 1] only for an orthonormal basis: normalised columns do not suffice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

INITIAL_SCALE = 0.1  # of the entries of D_0
MAX_SWEEPS = 10_000  # of Algorithm 2, whose changes fall geometrically


class Solution(NamedTuple):
    """What one iteration finds of its sample.

    Attributes:
        v: float64[d], coefficients (eq. 3.1).
        e: float64[p], sparse corruption (eq. 3.1); NaN where the sample is missing.
        u: float64[d], coefficients of the atom (eq. 3.8).
        cleaned: float64[p], z - e; D v where the sample is missing.
    """

    v: Array
    e: Array
    u: Array
    cleaned: Array


class PaperOLRSC:
    """Algorithm 1 over samples, in one or several epochs; keeps U and V, so memory grows with the samples.

    `models.OLRSC` is the bounded form.

    Args:
        dims: p, numbers of a sample.
        rank: d, an upper bound of the rank of the clean data.
        lambda1: weight of the squared residual, positive.
        lambda2: weight of the l1 norm of e, positive; 1 / sqrt(p) by default.
        sparse: whether observed entries may be corrupted (see above).
        epsilon: relative change at which Algorithm 2 ends, positive.
        basis: float64[p, d], D_0; drawn from `seed` by default.
        seed: of D_0.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        dims: int,
        rank: int,
        *,
        lambda1: float = 1.0,
        lambda2: float | None = None,
        sparse: bool = True,
        epsilon: float = 1e-3,
        basis: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        if dims < 1 or rank < 1:
            raise ValueError("dims and rank must be at least 1")
        self.lambda1 = lambda1
        self.lambda2 = 1.0 / math.sqrt(dims) if lambda2 is None else lambda2
        if not (self.lambda1 > 0.0 and self.lambda2 > 0.0 and epsilon > 0.0):
            raise ValueError("lambda1, lambda2 and epsilon must be positive")
        if basis is None:
            basis = INITIAL_SCALE * np.random.default_rng(seed).normal(size=(dims, rank))
        self.D: Array = np.array(basis, dtype=np.float64)
        if self.D.shape != (dims, rank):
            raise ValueError(f"basis has the shape {self.D.shape} where ({dims}, {rank}) is expected")
        self.sparse, self.epsilon = sparse, epsilon
        self.t = 0
        self.M: Array = np.zeros((dims, rank))
        self.A: Array = np.zeros((rank, rank))
        self.B: Array = np.zeros((dims, rank))
        self._found: list[Solution] = []

    @property
    def lambda3(self) -> float:
        """Weight of the constraint D = Y U at iteration t: sqrt(t) / sqrt(p) (section 6 there)."""
        return math.sqrt(self.t / len(self.D))

    @property
    def u(self) -> Array:
        """float64[n, d], U: rows u of the samples so far."""
        return np.array([found.u for found in self._found])

    @property
    def v(self) -> Array:
        """float64[n, d], V: rows v of the samples so far; U V' is the representation X."""
        return np.array([found.v for found in self._found])

    @property
    def cleaned(self) -> Array:
        """float64[n, p], rows z - e of the samples so far."""
        return np.array([found.cleaned for found in self._found])

    def fit(self, samples: ArrayLike, epochs: int = 1) -> PaperOLRSC:
        """Learn from samples in order, each once in every epoch.

        Args:
            samples: float64[n, p], NaN where missing.
            epochs: at least 1; the later ones correct the coefficients of the earlier.
        """
        rows = np.atleast_2d(np.asarray(samples, dtype=np.float64))
        first = len(self._found)
        for z in rows:
            self.update(z)
        for _ in range(1, epochs):
            for i, z in enumerate(rows):
                self.revisit(first + i, z)
        return self

    def update(self, z: ArrayLike) -> Solution:
        """One iteration with a new sample.

        Args:
            z: float64[p], NaN where missing.

        Raises:
            ValueError: the shape does not fit, or a value is infinite; nothing has changed then.
        """
        sample = self._checked(z)
        found = self._iterate(sample)
        self._found.append(found)
        return found

    def revisit(self, index: int, z: ArrayLike) -> Solution:
        """One iteration with sample `index` again, in a later epoch; its former contributions are taken back."""
        sample = self._checked(z)
        self._contribute(sample, self._found[index], -1.0)
        self._found[index] = self._iterate(sample)
        return self._found[index]

    def _checked(self, z: ArrayLike) -> Array:
        sample = np.asarray(z, dtype=np.float64)
        if sample.shape != (len(self.D),):
            raise ValueError(f"a sample has the shape {sample.shape} where ({len(self.D)},) is expected")
        if np.isinf(sample).any():
            raise ValueError("only finite numbers, or NaN for a missing one, reach a model")
        return sample

    def _iterate(self, z: Array) -> Solution:
        self.t += 1
        v, e = self._code(z)
        y = np.nan_to_num(z)
        u = (self.D - self.M).T @ y / (y @ y + 1.0 / self.lambda3)
        found = Solution(v, e, u, np.where(np.isnan(z), self.D @ v, z - e))
        self._contribute(z, found, 1.0)
        self._improve_basis()
        return found

    def _contribute(self, z: Array, found: Solution, sign: float) -> None:
        self.M += sign * np.outer(np.nan_to_num(z), found.u)
        self.A += sign * np.outer(found.v, found.v)
        self.B += sign * np.outer(found.cleaned, found.v)

    def _code(self, z: Array) -> tuple[Array, Array]:
        """Algorithm 2 on the observed rows."""
        seen = ~np.isnan(z)
        basis, target = self.D[seen], z[seen]
        solve = np.linalg.solve(basis.T @ basis + np.eye(basis.shape[1]) / self.lambda1, basis.T)
        delta = self.lambda2 / self.lambda1
        v, e = np.zeros(basis.shape[1]), np.zeros(len(target))
        for _ in range(MAX_SWEEPS):
            former_v, former_e = v, e
            v = solve @ (target - e)
            if not self.sparse:
                break
            rest = target - basis @ v
            e = rest - np.clip(rest, -delta, delta)
            if self._settled(v, former_v) and self._settled(e, former_e):
                break
        corruption = np.full(len(z), np.nan)
        corruption[seen] = e
        return v, corruption

    def _settled(self, new: Array, former: Array) -> bool:
        return bool(np.linalg.norm(new - former) <= self.epsilon * np.linalg.norm(former))

    def _improve_basis(self) -> None:
        """One pass of Algorithm 3."""
        a_hat = self.lambda1 * self.A + self.lambda3 * np.eye(len(self.A))
        b_hat = self.lambda1 * self.B + self.lambda3 * self.M
        for j in range(len(a_hat)):
            self.D[:, j] -= (self.D @ a_hat[:, j] - b_hat[:, j]) / a_hat[j, j]


def expressed_variance(basis: Array, truth: Array) -> float:
    """Share of tr(L L') that lies in the span of a basis, in [0, 1] (section 6 of paper 002, D orthonormalised).

    Args:
        basis: float64[p, d].
        truth: float64[p, k], L.
    """
    q, s, _ = np.linalg.svd(basis, full_matrices=False)
    q = q[:, s > 1e-10 * s[0]] if s[0] > 0.0 else q[:, :0]
    return float(np.sum((q.T @ truth) ** 2) / np.sum(truth**2))
