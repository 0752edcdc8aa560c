"""Serial dependence of a warm-up, and autoregressions that take it out.

The test is that of Ljung and Box (1978) with 10 lags: Q = n (n + 2) sum_k r_k^2 / (n - k); `dependence` has its
critical values. Whitening fits, feature by feature, z_t on (1, z_{t-1}, ..., z_{t-8}) by recursive least squares
without forgetting; what goes on is the innovation, predicted before the sample is learned.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.scaling import quantile
from kstream_worker.numerics.jit import inline

AR_ORDER = 8
AR_TERMS = AR_ORDER + 1
AR_COV = AR_TERMS * (AR_TERMS + 1) // 2
AR_PRIOR = 1e6  # P = 1e6 I at the start: what is smooth has innovations of a thousandth of a scale
AR_CLIP = 50.0  # scaled samples are clipped to +-50 before they enter an autoregression: one of 1e300 must not end it
LAGS = 10
SQUARE_CLIP = 25.0


@inline
def ljung_box(x: np.ndarray, n: int) -> float:
    """Q of the first n entries, n > 10; 0 for a constant series.

    Args:
        x: float64[>= n], of moderate size (the sum of squares must not overflow).
        n: length.
    """
    mean = 0.0
    for i in range(n):
        mean += x[i]
    mean /= n
    power = 0.0
    for i in range(n):
        power += (x[i] - mean) * (x[i] - mean)
    if power <= 1e-24 * n:
        return 0.0
    q = 0.0
    for lag in range(1, LAGS + 1):
        product = 0.0
        for i in range(lag, n):
            product += (x[i] - mean) * (x[i - lag] - mean)
        r = product / power
        q += r * r / (n - lag)
    return n * (n + 2.0) * q


@inline
def clipped_squares(x: np.ndarray, n: int, work: np.ndarray) -> None:
    """x[i] <- x[i]^2 / (75 % quantile of |x|)^2, clipped at 25; all 0 where that quantile is 0.

    Args:
        x: float64[>= n], changed.
        n: length.
        work: float64[>= n], scratch.
    """
    for i in range(n):
        work[i] = abs(x[i])
    unit = quantile(work, n, 0.75)
    for i in range(n):
        s = x[i] / unit if unit > 0.0 else 0.0
        x[i] = min(s * s, SQUARE_CLIP)


@inline
def ar_reset(ring: np.ndarray, coef: np.ndarray, cov: np.ndarray) -> None:
    """Start one feature's autoregression: no memory, coefficients 0, P = 1e6 I.

    Args:
        ring: float64[8], last samples, newest first.
        coef: float64[9], intercept, then lags 1 to 8.
        cov: float64[45], P, lower triangle by rows.
    """
    for i in range(AR_ORDER):
        ring[i] = 0.0
    for i in range(AR_TERMS):
        coef[i] = 0.0
    for i in range(AR_COV):
        cov[i] = 0.0
    for i in range(AR_TERMS):
        cov[i * (i + 1) // 2 + i] = AR_PRIOR


@inline
def ar_step(s: float, full: bool, ring: np.ndarray, coef: np.ndarray, cov: np.ndarray, gain: np.ndarray) -> float:
    """The innovation of s; then s is learned (once eight samples came before it) and remembered.

    Args:
        s: the next scaled sample.
        full: whether eight samples came before it.
        ring: float64[8], changed.
        coef: float64[9], changed.
        cov: float64[45], changed.
        gain: float64[>= 9], scratch.
    """
    guess: float = coef[0]
    for i in range(AR_ORDER):
        guess += coef[i + 1] * ring[i]
    innovation: float = s - guess
    if full:
        _learn(innovation, ring, coef, cov, gain)
    for i in range(AR_ORDER - 1, 0, -1):
        ring[i] = ring[i - 1]
    ring[0] = s
    return innovation


@inline
def _learn(innovation: float, ring: np.ndarray, coef: np.ndarray, cov: np.ndarray, gain: np.ndarray) -> None:
    """gain = P h, coef += gain e / (1 + h' gain), P -= gain gain' / (1 + h' gain), h = (1, ring)."""
    at = 0
    for i in range(AR_TERMS):
        hi = 1.0 if i == 0 else ring[i - 1]
        total = cov[at] * 1.0
        for j in range(1, i + 1):
            total += cov[at + j] * ring[j - 1]
        gain[i] = total
        for j in range(i):
            gain[j] += cov[at + j] * hi
        at += i + 1
    spread = 1.0 + gain[0]
    for i in range(AR_ORDER):
        spread += gain[i + 1] * ring[i]
    step = innovation / spread
    shrink = 1.0 / spread
    at = 0
    for i in range(AR_TERMS):
        coef[i] += gain[i] * step
        a = gain[i] * shrink
        for j in range(i + 1):
            cov[at + j] -= a * gain[j]
        at += i + 1


@inline
def ar_shift(by: float, ring: np.ndarray, coef: np.ndarray, cov: np.ndarray) -> None:
    """Go on in units whose zero lies at `by` in the former ones; all innovations to come are the same.

    With h = (1, ring) the new regressors are T h, T = I less `by` in the first column below the diagonal, so that P
    becomes T^-T P T^-1; the intercept also follows what is predicted.

    Args:
        by: in scales.
        ring: float64[8], changed.
        coef: float64[9], changed.
        cov: float64[45], changed.
    """
    lags = 0.0
    both = 0.0
    for i in range(1, AR_TERMS):
        at = i * (i + 1) // 2
        lags += coef[i]
        row = 0.0
        for j in range(1, AR_TERMS):
            row += cov[at + j] if j <= i else cov[j * (j + 1) // 2 + i]
        both += by * row + 2.0 * cov[at]
        cov[at] += by * row
        ring[i - 1] -= by
    cov[0] += by * both
    coef[0] += by * (lags - 1.0)


@inline
def unit_root_t(coef: np.ndarray, cov: np.ndarray, innovations: np.ndarray, n: int) -> float:
    """Dickey and Fuller's statistic: (sum of lag coefficients - 1) in units of its standard error.

    An autoregression of order 8 written in differences has that sum, less 1, as the coefficient of the level.

    Args:
        coef: float64[9], learned.
        cov: float64[45], P.
        innovations: float64[>= n], the last ones.
        n: how many.

    Returns:
        the statistic; minus infinity where innovations are all 0 (a constant series is stationary).
    """
    power = 0.0
    for i in range(n):
        power += innovations[i] * innovations[i]
    total = -1.0
    spread = 0.0
    for i in range(1, AR_TERMS):
        total += coef[i]
        at = i * (i + 1) // 2
        for j in range(1, i):
            spread += 2.0 * cov[at + j]
        spread += cov[at + i]
    variance = spread * power / n
    if variance <= 1e-24:
        return -math.inf
    result: float = total / math.sqrt(variance)
    return result
