"""A plain transcription of the rank detector's rules: one key, dense arrays, float bags, straightforward loops.

It shares the counter-based draws with the bank (so that both see the same coins on the same samples) and nothing else:
scales, atoms, kernel, recursive least squares, ranks and bets are written out again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.random import below, uniform

V_ROOM, H_ROOM, SLOW_ROOM, BLOCK, ATOMS = 1000, 500, 500, 25, 50
ALPHA, GAMMA, RIDGE = 0.1, 0.995, 1.0
RANK, REMOVE, RANK_LEARNED, REMOVE_LEARNED, PICK, REPLACE, RANK_SLOW, REMOVE_SLOW = range(8)

Matrix = NDArray[np.float64]


@jit
def first_alarm(  # noqa: PLR0912  (the rules in one place, in their order)
    raw: Matrix, stream: np.uint64, warmup: int, threshold: float
) -> int:
    """Index of the first sample at which a weighted column reaches the threshold; -1 if none does.

    Args:
        raw: float64[n, d], one key's samples.
        stream: of its draws.
        warmup: samples before arming; first half for scales, atoms and references, second half for the bags.
        threshold: of w mean R.
    """
    n, d = raw.shape
    half = warmup // 2
    z = _scaled(raw, half)
    products = d * (d - 1) // 2 if 2 <= d <= 10 else 0
    fixed = d + (1 if d > 1 else 0) + products
    columns = fixed + d + 1
    weights = _weights(d, products, fixed, columns)
    R = np.zeros((columns, 14))

    V = np.empty((fixed, V_ROOM))  # all fixed scores of the samples in the bag
    scores = np.empty(fixed)
    H = np.empty(H_ROOM, dtype=np.int64)
    T = np.empty(H_ROOM, dtype=np.int64)
    slow = np.empty((SLOW_ROOM, d))
    v_size, h_size, t_size, slow_size = 0, 0, 0, 0
    for t in range(half):
        T[t] = t
        t_size += 1
    for t in range(half, warmup):
        _fixed_scores(z[t], products, V[:, v_size])
        H[h_size] = t
        v_size += 1
        h_size += 1

    width = 0.7 * _median_distance(z[:half])
    atoms, inverse = _atoms(z[:half], width)
    m = len(atoms)
    P = np.eye(m) / RIDGE
    b = np.zeros(m)
    w = np.zeros(m)
    w_rank = np.zeros(m)
    h_scores = np.zeros(H_ROOM)
    h_count = 0
    step = 0
    mean = np.zeros(d)

    for t in range(warmup, n):
        since = t - warmup
        seq = t + 1
        u = uniform(stream, RANK, seq)
        _fixed_scores(z[t], products, scores)
        for c in range(fixed):
            _two_sided(R[c], _rank(V[c, :v_size], scores[c], u), 1.0)
        coin = below(stream, REMOVE, seq, V_ROOM + 1)
        at = v_size if v_size < V_ROOM else coin
        if at < V_ROOM:
            V[:, at] = scores
        v_size = min(v_size + 1, V_ROOM)

        if since % 2 == 0:
            # T: the sample trains the estimate against a uniform draw from the references
            pick = T[below(stream, PICK, seq, t_size)]
            step += 1
            p = inverse @ _kernel(z[pick], atoms, width)
            q = inverse @ _kernel(z[t], atoms, width)
            P, b, w = _least_squares(P, b, p, q, step)
            if t_size < H_ROOM:
                T[t_size] = t
                t_size += 1
            else:
                T[below(stream, REPLACE, seq, H_ROOM)] = t
        else:
            # H: every 16th such sample the weights are copied and the whole bag is scored with the copy
            if h_count % 16 == 0:
                w_rank = inverse.T @ w
                for i in range(h_size):
                    h_scores[i] = (_kernel(z[H[i]], atoms, width) * w_rank).sum()
            h_count += 1
            score = (_kernel(z[t], atoms, width) * w_rank).sum()
            _one_sided(R[columns - 1], _rank(h_scores[:h_size], score, uniform(stream, RANK_LEARNED, seq)), 2.0)
            coin = below(stream, REMOVE_LEARNED, seq, H_ROOM + 1)
            at = h_size if h_size < H_ROOM else coin
            if at < H_ROOM:
                H[at] = t
                h_scores[at] = score
            h_size = min(h_size + 1, H_ROOM)

        mean += z[t] / BLOCK
        if since % BLOCK == BLOCK - 1:
            u = uniform(stream, RANK_SLOW, seq)
            for j in range(d):
                _two_sided(R[fixed + j], _rank(slow[:slow_size, j], mean[j], u), 25.0)
            coin = below(stream, REMOVE_SLOW, seq, SLOW_ROOM + 1)
            at = slow_size if slow_size < SLOW_ROOM else coin
            if at < SLOW_ROOM:
                slow[at] = mean
            slow_size = min(slow_size + 1, SLOW_ROOM)
            mean = np.zeros(d)

        for c in range(columns):
            bets = 6 if c == columns - 1 else 14
            if weights[c] * R[c, :bets].sum() / bets >= threshold:
                return t
    return -1


@inline
def _scaled(raw: Matrix, half: int) -> Matrix:
    """Median and IQR / 1.349 of the first half of the warm-up (normal data: never constant), clipped to +-6."""
    z = np.empty_like(raw)
    for j in range(raw.shape[1]):
        q25, q50, q75 = np.quantile(raw[:half, j].copy(), np.array([0.25, 0.5, 0.75]))
        scale = (q75 - q25) / 1.349
        for t in range(len(raw)):
            z[t, j] = min(max((raw[t, j] - q50) / scale, -6.0), 6.0)
    return z


@inline
def _fixed_scores(z: Matrix, products: int, out: Matrix) -> None:
    d = len(z)
    column = d
    for j in range(d):
        out[j] = z[j]
    if d > 1:
        out[column] = np.sqrt((z**2).sum())
        column += 1
    if products > 0:
        for i in range(d):
            for j in range(i + 1, d):
                out[column] = z[i] * z[j]
                column += 1


@inline
def _weights(d: int, products: int, fixed: int, columns: int) -> Matrix:
    weights = np.empty(columns)
    own = fixed - products
    weights[:own] = 0.9 * (0.5 if products > 0 else 0.75) / own
    weights[own:fixed] = 0.9 * 0.25 / max(1, products)
    weights[fixed : fixed + d] = 0.1 / d
    weights[columns - 1] = 0.9 * 0.25
    return weights


@inline
def _median_distance(z: Matrix) -> float:
    n = len(z)
    distances = np.empty(n * (n - 1) // 2)
    k = 0
    for i in range(n):
        for j in range(i):
            distance = np.sqrt(((z[i] - z[j]) ** 2).sum())
            if distance > 0.0:
                distances[k] = distance
                k += 1
    return np.median(distances[:k])


@inline
def _kernel(point: Matrix, atoms: Matrix, width: float) -> Matrix:
    k = np.empty(len(atoms))
    for i in range(len(atoms)):
        square = 0.0
        for j in range(len(point)):
            square += (point[j] - atoms[i, j]) ** 2
        k[i] = np.exp(-0.5 * square / width**2)
    return k


@inline
def _atoms(z: Matrix, width: float) -> tuple[Matrix, Matrix]:
    """Greedy pivoted Cholesky of the kernel matrix: at most 50 points; their inverse Cholesky factor."""
    n = len(z)
    K = np.empty((n, n))
    for i in range(n):
        K[i] = _kernel(z[i], z, width)
    rest = np.ones(n)
    L = np.zeros((n, ATOMS))
    chosen = np.empty(ATOMS, dtype=np.int64)
    m = 0
    while m < ATOMS and m < n:
        best = np.argmax(rest)
        if rest[best] <= 1e-8:
            break
        pivot = np.sqrt(rest[best])
        for i in range(n):
            L[i, m] = (K[i, best] - (L[i, :m] * L[best, :m]).sum()) / pivot
        rest = rest - L[:, m] ** 2
        rest[best] = -1.0
        chosen[m] = best
        m += 1
    factor = np.zeros((m, m))
    for i in range(m):
        for j in range(i + 1):
            factor[i, j] = L[chosen[i], j]
    return z[chosen[:m]].copy(), np.linalg.inv(factor).astype(np.float64)


@inline
def _least_squares(P: Matrix, b: Matrix, p: Matrix, q: Matrix, step: int) -> tuple[Matrix, Matrix, Matrix]:
    """One step of f = 1 + w' phi on (p, q), forgetting .995; the ridge is given back coordinate by coordinate."""
    m = len(b)
    P = P / GAMMA
    for weight, v in ((1.0 - ALPHA, p), (ALPHA, q)):
        Pv = P @ v
        P = P - weight / (1.0 + weight * (v @ Pv)) * np.outer(Pv, Pv)
    b = GAMMA * b + (1.0 - ALPHA) * (q - p)
    if step % 8 == 0:
        j = (step // 8 - 1) % m
        added = RIDGE * (1.0 - GAMMA ** (8.0 * m))
        Pj = P[:, j].copy()
        P = P - added / (1.0 + added * Pj[j]) * np.outer(Pj, Pj)
    if step % 100 == 0:
        P = 0.5 * (P + P.T)
    return P, b, P @ b


@inline
def _rank(others: Matrix, own: np.float64, u: float) -> float:
    larger = 0
    equal = 0
    for other in others:
        if other > own:
            larger += 1
        elif other == own:
            equal += 1
    return (larger + u * (equal + 1)) / (len(others) + 1)


@inline
def _two_sided(R: Matrix, p: float, a: float) -> None:
    b = 1.0 - 2.0 * p
    u = 1.5 * b * b - 0.5
    r = max(2.0 * min(p, 1.0 - p), 1e-6)
    k = 0
    for c in (0.1, 0.25, 0.5, 0.95):
        R[k] = (R[k] + a) * (1.0 + c * b)
        R[k + 1] = (R[k + 1] + a) * (1.0 - c * b)
        k += 2
    for c in (0.4, 0.95):
        R[k] = (R[k] + a) * (1.0 + c * u)
        R[k + 1] = (R[k + 1] + a) * (1.0 - c * u)
        k += 2
    R[12] = (R[12] + a) * 0.5 * r**-0.5
    R[13] = (R[13] + a) * 0.25 * r**-0.75


@inline
def _one_sided(R: Matrix, p: float, a: float) -> None:
    b = 1.0 - 2.0 * p
    floored = max(p, 1e-6)
    for k, c in enumerate((0.1, 0.25, 0.5, 0.95)):
        R[k] = (R[k] + a) * (1.0 + c * b)
    R[4] = (R[4] + a) * 0.5 * floored**-0.5
    R[5] = (R[5] + a) * 0.25 * floored**-0.75
