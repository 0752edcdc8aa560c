"""One step of each estimator on the whitened features of a pair: recursive least squares and stochastic gradients."""

from __future__ import annotations

import numpy as np

from kstream_worker.models.nystrom.features import dot, packed_size, packed_start
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, join1, join2, join3, load, store, total

RIDGE_PERIOD = 8  # steps between two injections of the ridge


@inline
def rls_reset(m: int, ridge: float, cov: np.ndarray, w: np.ndarray) -> None:
    """P <- I / ridge, w <- 0: the estimate before the first pair, f = 1."""
    for i in range(packed_size(m)):
        cov[i] = 0.0
    for j in range(m):
        cov[packed_start(j, m)] = 1.0 / ridge
        w[j] = 0.0


@inline
def rls_step(
    cov: np.ndarray,
    m: int,
    w: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
    alpha: float,
    gamma: float,
    ridge: float,
    step: int,
    gp: np.ndarray,
    gq: np.ndarray,
) -> None:
    """One step of recursive least squares on a pair: w becomes the minimiser of eq. 10 with weights of forgetting.

    A <- gamma A + (1-alpha) p p' + alpha q q',  b <- gamma b + (1-alpha)(q - p),  w = A^-1 b, from A = ridge I, b =
    0. Held is P = A^-1 and w (which follows by w += P ((1 - alpha f(y)) q - (1 - alpha) f(x) p), f before the step).

    With gamma < 1 the ridge would fade and P grow without bound in directions that are not excited. So after every
    `RIDGE_PERIOD`-th step (step = 8, 16, ...) one coordinate, (step / 8 - 1) mod m, gets ridge (1 - gamma^(8 m))
    added to its diagonal
    entry of A, b unchanged: along each axis the ridge then stays between ridge gamma^(8 m) and ridge.

    Args:
        cov: float64[m (m + 1) / 2], P, changed.
        m: features.
        w: float64[>= m], weights, changed.
        p: float64[>= m], whitened x.
        q: float64[>= m], whitened y.
        alpha: weight of the live side in the relative ratio, 0 <= alpha < 1.
        gamma: forgetting, 0 < gamma <= 1.
        ridge: > 0.
        step: number of this step for this key, from 1; it alone fixes phase and order of the injection.
        gp: float64[>= m], scratch.
        gq: float64[>= m], scratch.
    """
    _symmetric_times_pair(cov, m, p, q, gp, gq)
    fade = 1.0 / gamma
    a = fade * dot(p, gp, m)
    b = fade * dot(p, gq, m)
    c = fade * dot(q, gq, m)
    fx = 1.0 + dot(w, p, m)
    fy = 1.0 + dot(w, q, m)
    e1 = 1.0 + (1.0 - alpha) * a
    along = (1.0 - alpha) * b / e1
    e2 = 1.0 + alpha * (c - along * b)
    slope = fill(fade)
    ratio = fill(along)
    for i in range(0, m, 4):
        first = slope * load(gp, i)
        store(gp, i, first)
        store(gq, i, slope * load(gq, i) - ratio * first)
    fade_and_subtract(cov, m, fade, (1.0 - alpha) / e1, gp, alpha / e2, gq)
    # With hq = gq now: P q = hq / e2 and P p = gp / e1 - (alpha b / (e1 e2)) hq.
    cp = -(1.0 - alpha) * fx
    cq = 1.0 - alpha * fy
    on_p = fill(cp / e1)
    on_q = fill((cq - cp * alpha * b / e1) / e2)
    for i in range(0, m, 4):
        store(w, i, load(w, i) + (on_p * load(gp, i) + on_q * load(gq, i)))
    if gamma < 1.0 and step % RIDGE_PERIOD == 0:
        added = ridge * (1.0 - whole_power(gamma, RIDGE_PERIOD * m))
        _inject(cov, m, w, (step // RIDGE_PERIOD - 1) % m, added, gp)


@inline
def sgd_step(w: np.ndarray, m: int, p: np.ndarray, q: np.ndarray, alpha: float, eta: float, decay: float) -> None:
    """One stochastic gradient step on a pair (Algorithm 1 projected on the span of the atoms, f = 1 + u).

    w <- (1 - eta decay) w - eta (1 - alpha) f(x) p + eta (1 - alpha f(y)) q, f before the step.

    Args:
        w: float64[>= m], weights, changed.
        m: features.
        p: float64[>= m], whitened x.
        q: float64[>= m], whitened y.
        alpha: weight of the live side in the relative ratio, 0 <= alpha < 1.
        eta: step size, constant.
        decay: lambda_t of this step: a constant, or 1 / (t + 100) with t from 1 (`slow_decay`).
    """
    on_p = fill(-eta * (1.0 - alpha) * (1.0 + dot(w, p, m)))
    on_q = fill(eta * (1.0 - alpha * (1.0 + dot(w, q, m))))
    keep = fill(1.0 - eta * decay)
    for i in range(0, m, 4):
        store(w, i, keep * load(w, i) + (on_p * load(p, i) + on_q * load(q, i)))


@inline
def slow_decay(step: int) -> float:
    """lambda_t = 1 / (t + 100), t from 1: the regularisation of averaged SGD."""
    return 1.0 / (step + 100.0)


@inline
def average_step(mean: np.ndarray, w: np.ndarray, m: int, step: int) -> None:
    """The plain mean of the iterates 1..step, in place."""
    share = fill(1.0 / step)
    for i in range(0, m, 4):
        former = load(mean, i)
        store(mean, i, former + share * (load(w, i) - former))


@inline
def whole_power(x: float, n: int) -> float:
    """x^n for n >= 0 by repeated squaring (libm's `pow` differs between machines)."""
    result = 1.0
    while n > 0:
        if n % 2 == 1:
            result *= x
        x *= x
        n //= 2
    return result


@inline
def _symmetric_times_pair(  # noqa: PLR0915 - eight running sums stay in registers only in one loop
    cov: np.ndarray, m: int, p: np.ndarray, q: np.ndarray, gp: np.ndarray, gq: np.ndarray
) -> None:
    """gp <- P p, gq <- P q in one pass over the packed triangle: each column serves as a column and as a row."""
    zero = fill(0.0)
    for i in range(0, m, 4):
        store(gp, i, zero)
        store(gq, i, zero)
    c0 = 0
    for j in range(0, m, 4):
        c1 = c0 + m - j - 1
        c2 = c1 + m - j - 2
        c3 = c2 + m - j - 3
        a0 = fill(p[j])
        a1 = fill(p[j + 1])
        a2 = fill(p[j + 2])
        a3 = fill(p[j + 3])
        b0 = fill(q[j])
        b1 = fill(q[j + 1])
        b2 = fill(q[j + 2])
        b3 = fill(q[j + 3])
        # Rows j..j+3. As columns with the diagonal, as rows without it.
        v0 = load(cov, c0)
        v1 = join1(zero, load(cov, c1))
        v2 = join2(zero, load(cov, c2))
        v3 = join3(zero, load(cov, c3))
        store(gp, j, load(gp, j) + ((a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3)))
        store(gq, j, load(gq, j) + ((b0 * v0 + b1 * v1) + (b2 * v2 + b3 * v3)))
        x = load(p, j)
        y = load(q, j)
        v0 = join1(zero, v0)
        v1 = join2(zero, v1)
        v2 = join3(zero, v2)
        s0 = v0 * x
        s1 = v1 * x
        s2 = v2 * x
        s3 = zero
        t0 = v0 * y
        t1 = v1 * y
        t2 = v2 * y
        t3 = zero
        for i in range(4, m - j, 4):
            v0 = load(cov, c0 + i)
            v1 = load(cov, c1 + i)
            v2 = load(cov, c2 + i)
            v3 = load(cov, c3 + i)
            store(gp, j + i, load(gp, j + i) + ((a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3)))
            store(gq, j + i, load(gq, j + i) + ((b0 * v0 + b1 * v1) + (b2 * v2 + b3 * v3)))
            x = load(p, j + i)
            y = load(q, j + i)
            s0 = s0 + v0 * x
            s1 = s1 + v1 * x
            s2 = s2 + v2 * x
            s3 = s3 + v3 * x
            t0 = t0 + v0 * y
            t1 = t1 + v1 * y
            t2 = t2 + v2 * y
            t3 = t3 + v3 * y
        gp[j] += total(s0)
        gp[j + 1] += total(s1)
        gp[j + 2] += total(s2)
        gp[j + 3] += total(s3)
        gq[j] += total(t0)
        gq[j + 1] += total(t1)
        gq[j + 2] += total(t2)
        gq[j + 3] += total(t3)
        c0 = c3 + m - j


@inline
def fade_and_subtract(
    cov: np.ndarray, m: int, fade: float, on_u: float, u: np.ndarray, on_v: float, v: np.ndarray
) -> None:
    """P <- fade P - on_u u u' - on_v v v'."""
    keep = fill(fade)
    c0 = 0
    for j in range(0, m, 4):
        c1 = c0 + m - j - 1
        c2 = c1 + m - j - 2
        c3 = c2 + m - j - 3
        a0 = fill(on_u * u[j])
        a1 = fill(on_u * u[j + 1])
        a2 = fill(on_u * u[j + 2])
        a3 = fill(on_u * u[j + 3])
        b0 = fill(on_v * v[j])
        b1 = fill(on_v * v[j + 1])
        b2 = fill(on_v * v[j + 2])
        b3 = fill(on_v * v[j + 3])
        # Rows j..j+3: entries of other columns that stand before a diagonal are written back as they were.
        x = load(u, j)
        y = load(v, j)
        store(cov, c0, keep * load(cov, c0) - (a0 * x + b0 * y))
        old = load(cov, c1)
        store(cov, c1, join1(old, keep * old - (a1 * x + b1 * y)))
        old = load(cov, c2)
        store(cov, c2, join2(old, keep * old - (a2 * x + b2 * y)))
        old = load(cov, c3)
        store(cov, c3, join3(old, keep * old - (a3 * x + b3 * y)))
        for i in range(4, m - j, 4):
            x = load(u, j + i)
            y = load(v, j + i)
            store(cov, c0 + i, keep * load(cov, c0 + i) - (a0 * x + b0 * y))
            store(cov, c1 + i, keep * load(cov, c1 + i) - (a1 * x + b1 * y))
            store(cov, c2 + i, keep * load(cov, c2 + i) - (a2 * x + b2 * y))
            store(cov, c3 + i, keep * load(cov, c3 + i) - (a3 * x + b3 * y))
        c0 = c3 + m - j


@inline
def _inject(cov: np.ndarray, m: int, w: np.ndarray, j: int, added: float, column: np.ndarray) -> None:
    """A <- A + added e_j e_j' with b unchanged, in terms of P = A^-1 and w = A^-1 b."""
    for i in range(j):
        column[i] = cov[packed_start(i, m) + j - i]
    first = packed_start(j, m)
    for i in range(j, m):
        column[i] = cov[first + i - j]
    gain = added / (1.0 + added * column[j])
    on_w = -gain * w[j]
    for i in range(m):
        w[i] += on_w * column[i]
    fade_and_subtract(cov, m, 1.0, gain, column, 0.0, column)
