"""Clusters of cleaned samples that lie near a union of subspaces, with fixed numbers of sweeps: equal bits everywhere.

Samples are projected on span D, whitened by their covariance there (a row space, the affinity of low-rank
representation), and compared by the squared cosine of their angle. The squared cosines are positive semi-definite and
of rank one per pair, so that the normalised affinity has as many eigenvalues near 1 as there are independent
subspaces, and for subspaces of r dimensions the next one is near 2 / (r + 2). Its leading eigenvectors give first
clusters (Ng, Jordan, Weiss, 2001), which a few rounds of K-subspaces then refine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.lowrank.linear import add_outer, cholesky, leading, normalise, solve_lower, solve_upper
from kstream_worker.models.nystrom.features import dot
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.random import uniform

MOST = 8  # clusters
_VECTORS = MOST + 1  # eigenvectors of the affinity
_ROUNDS = 5  # of K-subspaces, and of K-means before
_SMALLEST = 0.75  # eigenvalue that may count as a cluster of its own
_KEPT = 0.97  # share of the clusters' energy that their sub-bases keep
_NOISE = 0.05  # of the mean variance in span D, added to each direction before whitening: mere noise stays small
_PIVOT = 1e-10


class Space(NamedTuple):
    """Work space for n samples of p sensors and a basis of d columns."""

    points: NDArray[np.float64]  # [n * d], coordinates of the samples in an orthonormal basis of span D
    white: NDArray[np.float64]  # [n * d], whitened, of length 1
    affinity: NDArray[np.float64]  # [n * n]
    vectors: NDArray[np.float64]  # [_VECTORS * n]
    images: NDArray[np.float64]  # [_VECTORS * n]
    values: NDArray[np.float64]  # [_VECTORS]
    label: NDArray[np.int64]  # [n]
    former: NDArray[np.int64]  # [n]
    centers: NDArray[np.float64]  # [MOST * _VECTORS]
    lower: NDArray[np.float64]  # [d * d], of D' D
    moment: NDArray[np.float64]  # [d * d]
    factor: NDArray[np.float64]  # [d * d]
    parts: NDArray[np.float64]  # [MOST * d * d], orthonormal vectors of each cluster, by energy
    energy: NDArray[np.float64]  # [MOST * d]
    common: NDArray[np.int64]  # [MOST * MOST]
    sample: NDArray[np.float64]  # [max(p, d)]


def make_space(n: int, p: int, d: int) -> Space:
    """Work space for n samples of p sensors and a basis of d columns."""
    return Space(
        points=np.zeros(n * d),
        white=np.zeros(n * d),
        affinity=np.zeros(n * n),
        vectors=np.zeros(_VECTORS * n),
        images=np.zeros(_VECTORS * max(n, d)),
        values=np.zeros(_VECTORS),
        label=np.zeros(n, dtype=np.int64),
        former=np.zeros(n, dtype=np.int64),
        centers=np.zeros(MOST * _VECTORS),
        lower=np.zeros(d * d),
        moment=np.zeros(d * d),
        factor=np.zeros(d * d),
        parts=np.zeros(MOST * d * d),
        energy=np.zeros(MOST * d),
        common=np.zeros(MOST * MOST, dtype=np.int64),
        sample=np.zeros(max(p, d)),
    )


@inline
def _locate(samples: np.ndarray, n: int, basis: np.ndarray, p: int, d: int, gram: np.ndarray, s: Space) -> None:
    """s.points, and s.white with the cosines of whitened points as inner products."""
    cholesky(gram, d, s.lower, _PIVOT)
    for k in range(d * d):
        s.moment[k] = 0.0
    for i in range(n):
        point = s.points[i * d : (i + 1) * d]
        for j in range(d):
            point[j] = dot(basis[j * p : (j + 1) * p], samples[i * p : (i + 1) * p], p)
        solve_lower(s.lower, d, point)
        add_outer(s.moment, d, point, 1.0 / n)
    trace = 0.0
    for j in range(d):
        trace += s.moment[j * d + j]
    for j in range(d):
        s.moment[j * d + j] += _NOISE * trace / d
    cholesky(s.moment, d, s.factor, _PIVOT)
    for i in range(n):
        white = s.white[i * d : (i + 1) * d]
        for j in range(d):
            white[j] = s.points[i * d + j]
        solve_lower(s.factor, d, white)
        normalise(white, d)


@inline
def _compare(n: int, d: int, s: Space) -> None:
    """s.affinity: squared cosines, normalised by the square roots of their row sums."""
    for i in range(n):
        for j in range(i + 1):
            cosine = dot(s.white[i * d : (i + 1) * d], s.white[j * d : (j + 1) * d], d)
            s.affinity[i * n + j] = cosine * cosine
            s.affinity[j * n + i] = cosine * cosine
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += s.affinity[i * n + j]
        s.vectors[i] = 1.0 / math.sqrt(total) if total > 0.0 else 0.0
    for i in range(n):
        for j in range(n):
            s.affinity[i * n + j] *= s.vectors[i] * s.vectors[j]


@inline
def _count_clusters(found: int, s: Space) -> int:
    """The number of eigenvalues before the widest gap, among those near 1."""
    best = 1
    widest = s.values[0] - s.values[1]
    for k in range(2, found):
        gap = s.values[k - 1] - s.values[k]
        if s.values[k - 1] >= _SMALLEST and gap > widest:
            best = k
            widest = gap
    return best


@inline
def _spread_centers(n: int, clusters: int, s: Space) -> None:
    """Rows of `images` that point away from each other become the first centers."""
    chosen = 0
    for k in range(clusters):
        if k > 0:
            smallest = np.inf
            for i in range(n):
                nearest = 0.0
                for j in range(k):
                    c = abs(dot(s.images[i * clusters : (i + 1) * clusters], s.centers[j * clusters :], clusters))
                    nearest = max(nearest, c)
                length = dot(
                    s.images[i * clusters : (i + 1) * clusters], s.images[i * clusters : (i + 1) * clusters], clusters
                )
                if length > 0.5 and nearest < smallest:
                    smallest = nearest
                    chosen = i
        for j in range(clusters):
            s.centers[k * clusters + j] = s.images[chosen * clusters + j]


@inline
def _first_labels(n: int, clusters: int, s: Space) -> None:
    """K-means by cosines on the rows of the leading eigenvectors, each of length 1."""
    for i in range(n):
        row = s.images[i * clusters : (i + 1) * clusters]
        for k in range(clusters):
            row[k] = s.vectors[k * n + i]
        normalise(row, clusters)
    _spread_centers(n, clusters, s)
    for _ in range(_ROUNDS):
        for i in range(n):
            best = -np.inf
            for k in range(clusters):
                c = dot(s.images[i * clusters : (i + 1) * clusters], s.centers[k * clusters :], clusters)
                if c > best:
                    best = c
                    s.label[i] = k
        for k in range(clusters):
            center = s.centers[k * clusters : (k + 1) * clusters]
            for j in range(clusters):
                center[j] = 0.0
            for i in range(n):
                if s.label[i] == k:
                    for j in range(clusters):
                        center[j] += s.images[i * clusters + j]
            normalise(center, clusters)


@inline
def _fit_parts(n: int, d: int, clusters: int, most: int, s: Space) -> None:
    """Leading vectors of each cluster's points; those near 0, which tell little, count little."""
    for k in range(clusters):
        for q in range(d * d):
            s.moment[q] = 0.0
        vectors = s.parts[k * d * d : (k + 1) * d * d]
        for i in range(n):
            if s.label[i] == k:
                add_outer(s.moment, d, s.points[i * d : (i + 1) * d], 1.0 / n)
        for i in range(d):
            for j in range(i):
                s.moment[j * d + i] = s.moment[i * d + j]
        for q in range(d * d):
            vectors[q] = s.moment[q]
        leading(s.moment, d, most, vectors, s.factor, s.energy[k * d : (k + 1) * d])


@inline
def _choose_size(d: int, clusters: int, most: int, s: Space) -> int:
    """The common dimension of the sub-bases: the smallest that keeps `_KEPT` of the energy."""
    total = 0.0
    for k in range(clusters):
        for j in range(most):
            total += s.energy[k * d + j]
    kept = 0.0
    for size in range(1, most):
        for k in range(clusters):
            kept += s.energy[k * d + size - 1]
        if kept >= _KEPT * total:
            return size
    return most


@inline
def _assign(n: int, d: int, clusters: int, size: int, s: Space) -> None:
    """Each point to the cluster whose vectors hold most of it."""
    for i in range(n):
        best = -1.0
        for k in range(clusters):
            held = 0.0
            for j in range(size):
                at = (k * d + j) * d
                c = dot(s.parts[at : at + d], s.points[i * d : (i + 1) * d], d)
                held += c * c
            if held > best:
                best = held
                s.label[i] = k


@inline
def nearest(x: np.ndarray, p: int, pool: np.ndarray, clusters: int, size: int) -> int:
    """Which sub-basis holds most of x.

    Args:
        x: float64[>= p].
        p: sensors.
        pool: float64[clusters * size * p], orthonormal vectors of one sub-basis after another.
        clusters: at least 1.
        size: vectors of each.
    """
    best = -1.0
    chosen = 0
    for k in range(clusters):
        held = 0.0
        for j in range(size):
            at = (k * size + j) * p
            c = dot(pool[at : at + p], x, p)
            held += c * c
        if held > best:
            best = held
            chosen = k
    return chosen


@inline
def _rename(n: int, clusters: int, former: int, names: np.ndarray, s: Space) -> None:
    """names[:clusters] <- the former name with which each cluster shares most samples, else one that is free."""
    for q in range(MOST * MOST):
        s.common[q] = 0
    if former > 0:
        for i in range(n):
            s.common[s.label[i] * MOST + s.former[i]] += 1
    for k in range(clusters):
        names[k] = -1
    for _ in range(clusters):
        best = -1
        at = 0
        for q in range(clusters * MOST):
            if names[q // MOST] < 0 and s.common[q] > best:
                best = s.common[q]
                at = q
        names[at // MOST] = at % MOST
        for k in range(clusters):
            s.common[k * MOST + at % MOST] = -1


@inline
def _first_clusters(n: int, d: int, wanted: int, s: Space) -> int:
    """s.label by spectral clustering; how many clusters."""
    found = min(wanted if wanted > 0 else _VECTORS, n, d * (d + 1) // 2)  # d (d + 1) / 2: the affinity's rank
    _compare(n, d, s)
    for k in range(found):
        for i in range(n):
            s.vectors[k * n + i] = uniform(np.uint64(0), k, i) - 0.5
    leading(s.affinity, n, found, s.vectors, s.images, s.values)
    clusters = found if wanted > 0 else _count_clusters(found, s)
    _first_labels(n, clusters, s)
    return clusters


@inline
def _store(basis: np.ndarray, p: int, d: int, clusters: int, size: int, pool: np.ndarray, s: Space) -> None:
    """The clusters' vectors as directions of the sensors."""
    for k in range(clusters):
        for j in range(size):
            at = (k * d + j) * d
            for q in range(d):
                s.sample[q] = s.parts[at + q]
            solve_upper(s.lower, d, s.sample)
            target = pool[(k * size + j) * p : (k * size + j + 1) * p]
            for i in range(p):
                target[i] = 0.0
            for q in range(d):
                for i in range(p):
                    target[i] += s.sample[q] * basis[q * p + i]


@inline
def cluster(
    samples: np.ndarray,
    n: int,
    basis: np.ndarray,
    p: int,
    d: int,
    gram: np.ndarray,
    wanted: int,
    former: int,
    former_size: int,
    pool: np.ndarray,
    names: np.ndarray,
    s: Space,
) -> tuple[int, int]:
    """Sub-bases of the clusters of samples; each keeps the name of the former cluster it shares most samples with.

    Args:
        samples: float64[n * p], cleaned.
        n: samples, at least 1.
        basis: float64[d * p], D.
        p: sensors.
        d: columns of D.
        gram: float64[d * d], lower triangle of D' D.
        wanted: clusters, 1 to MOST; 0: as many as the widest gap of the eigenvalues says.
        former: clusters of the last time, 0 at first.
        former_size: vectors of each of these.
        pool: float64[2 * d * p], sub-bases (see `nearest`), of the last time and then of this one.
        names: int64[MOST], names in 0..MOST-1 of the clusters in the pool, likewise.
        s: work space.

    Returns:
        clusters and vectors of each.
    """
    for i in range(n):
        if former > 0:
            s.former[i] = names[nearest(samples[i * p : (i + 1) * p], p, pool, former, former_size)]
        s.label[i] = 0
    _locate(samples, n, basis, p, d, gram, s)
    clusters = 1 if wanted == 1 else _first_clusters(n, d, wanted, s)
    most = max(1, min(d, 2 * d // clusters))
    size = most
    for k in range(_ROUNDS):
        _fit_parts(n, d, clusters, most, s)
        if k == 0:
            size = _choose_size(d, clusters, most, s)
        _assign(n, d, clusters, size, s)
    _rename(n, clusters, former, names, s)
    _store(basis, p, d, clusters, size, pool, s)
    return clusters, size
